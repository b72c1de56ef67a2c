/* unit/api/codec_cases.h - bodies and answers for the codecs of peers, for unit, fault and fuzz
 * programs. */
#ifndef UNIT_API_CODEC_CASES_H
#define UNIT_API_CODEC_CASES_H

#include "unit/api/codec_case.h"

#define CASE_COUNT(list) (sizeof(list) / sizeof((list)[0]))

#define RESPONSES_TOOLS                                                                            \
    "\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\",\"description\":\"Weather\","      \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}},"        \
    "\"strict\":true},{\"type\":\"function\",\"name\":\"now\"}]"

static const struct codec_case responses_cases[] = {
    {.name = "text",
     .body = "{\"model\":\"tiny\",\"input\":\"Hi \\u00e9\"}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("Hello"), CASE_TEXT(" \"you\"\n\xc3\xa9")}},
    {.name = "settings",
     .body =
         "{\"model\":\"tiny\",\"instructions\":\"Be brief.\",\"input\":[{\"role\":\"user\","
         "\"content\":\"a\"}],\"max_output_tokens\":7,\"temperature\":0.25,\"top_p\":0.5,"
         "\"stream\":true,\"metadata\":{\"k\":\"v\"},\"truncation\":\"disabled\",\"store\":false,"
         "\"reasoning\":{\"effort\":\"low\"},\"text\":{\"format\":{\"type\":\"text\"}},"
         "\"user\":\"u1\",\"parallel_tool_calls\":false,\"seed\":5}",
     .finish = FINISH_LENGTH,
     .events = {CASE_TEXT("cut")}},
    {.name = "items",
     .body =
         "{\"model\":\"tiny\",\"input\":["
         "{\"type\":\"message\",\"role\":\"developer\",\"content\":[{\"type\":\"input_text\","
         "\"text\":\"A\"},{\"type\":\"input_text\",\"text\":\"B\"}]},"
         "{\"role\":\"user\",\"content\":\"q\"},"
         "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[]},"
         "{\"type\":\"message\",\"id\":\"msg_1\",\"status\":\"completed\",\"role\":\"assistant\","
         "\"content\":[{\"type\":\"output_text\",\"text\":\"Let me see.\",\"annotations\":[]}]},"
         "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"get_weather\","
         "\"arguments\":\"{\\\"city\\\": \\\"Rome\\\"}\"},"
         "{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"now\",\"arguments\":\"\"},"
         "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"sunny\"},"
         "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":"
         "\"input_text\",\"text\":\"noon\"}]},"
         "{\"type\":\"function_call\",\"call_id\":\"c3\",\"name\":\"now\",\"arguments\":\"{}\"},"
         "{\"type\":\"function_call_output\",\"call_id\":\"c3\",\"output\":\"one\"},"
         "{\"role\":\"user\",\"content\":\"and?\"}]," RESPONSES_TOOLS "}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("Fine.")}},
    {.name = "calls",
     .body =
         "{\"model\":\"tiny\",\"input\":\"w\",\"tool_choice\":\"required\"," RESPONSES_TOOLS "}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("I look."), CASE_TOOL(0, "get_weather"), CASE_ARGS(0, "{\"city\":"),
                CASE_ARGS(0, " \"Rome\"}"), CASE_TOOL(1, "now"), CASE_ARGS(1, "{}"),
                CASE_TEXT("Done.")}},
    {.name = "named_tool_cut_off",
     .body = "{\"model\":\"tiny\",\"input\":\"w\",\"tool_choice\":{\"type\":\"function\",\"name\":"
             "\"now\"}," RESPONSES_TOOLS "}",
     .finish = FINISH_LENGTH,
     .events = {CASE_TOOL(0, "now"), CASE_ARGS(0, "{\"zone\": \"U")}},
    {.name = "no_text",
     .body = "{\"model\":\"tiny\",\"input\":\"w\",\"tool_choice\":\"none\"," RESPONSES_TOOLS "}",
     .finish = FINISH_STOP},
    {.name = "thoughts",
     .body = "{\"model\":\"tiny\",\"input\":\"w\",\"reasoning\":{\"effort\":\"none\","
             "\"max_tokens\":7,\"exclude\":false}," RESPONSES_TOOLS "}",
     .finish = FINISH_STOP,
     .events = {CASE_THOUGHT("Hm,"), CASE_THOUGHT(" \"so\"\n\xc3\xa9."), CASE_TEXT("I look."),
                CASE_TOOL(0, "now"), CASE_ARGS(0, "{}")}},
    {.name = "thoughts_alone",
     .body = "{\"model\":\"tiny\",\"input\":\"w\",\"include_reasoning\":false,"
             "\"thinking_token_budget\":-1,\"chat_template_kwargs\":{\"enable_thinking\":true},"
             "\"reasoning\":{\"effort\":\"none\"}}",
     .finish = FINISH_LENGTH,
     .events = {CASE_THOUGHT("Hm")}},
    {.name = "thoughts_before",
     .body = "{\"model\":\"tiny\",\"input\":["
             "{\"role\":\"user\",\"content\":\"q\"},"
             "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\","
             "\"text\":\"not this\"}],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"A\"},"
             "{\"type\":\"reasoning_text\",\"text\":\"B\"}]},"
             "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
             "\"text\":\"Let me see.\"}]},"
             "{\"type\":\"reasoning\",\"id\":\"rs_2\",\"summary\":[],\"content\":[{\"type\":"
             "\"reasoning_text\",\"text\":\"in the middle\"}]},"
             "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"now\",\"arguments\":\"\"},"
             "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"noon\"},"
             "{\"type\":\"reasoning\",\"id\":\"rs_3\",\"summary\":[{\"type\":\"summary_text\","
             "\"text\":\"C\"}]},"
             "{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"now\",\"arguments\":\"\"},"
             "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":\"one\"},"
             "{\"type\":\"reasoning\",\"id\":\"rs_4\",\"summary\":[{\"type\":\"summary_text\","
             "\"text\":\"of nobody\"}]},"
             "{\"role\":\"user\",\"content\":\"and?\"},"
             "{\"role\":\"assistant\",\"content\":\"So.\"}]," RESPONSES_TOOLS "}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("Fine.")}},
    {.name = "failed",
     .body = "{\"model\":\"tiny\",\"input\":\"w\"}",
     .finish = FINISH_NONE,
     .events = {CASE_TEXT("Hel")}},
    {.name = "cancelled",
     .body = "{\"model\":\"tiny\",\"input\":\"w\"}",
     .finish = FINISH_CANCELLED,
     .events = {CASE_TEXT("Hel")}},
};

#define ANTHROPIC_TOOLS                                                                            \
    "\"tools\":[{\"name\":\"get_weather\",\"description\":\"Weather\",\"input_schema\":{\"type\":" \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}},{\"type\":\"custom\",\"name\":"  \
    "\"now\",\"input_schema\":{\"type\":\"object\"}}]"

static const struct codec_case anthropic_cases[] = {
    {.name = "text",
     .body = "{\"model\":\"tiny\",\"max_tokens\":100,\"messages\":[{\"role\":\"user\",\"content\":"
             "\"Hi \\u00e9\"}]}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("Hello"), CASE_TEXT(" \"you\"\n\xc3\xa9")}},
    {.name = "settings",
     .body = "{\"model\":\"tiny\",\"max_tokens\":5,\"system\":[{\"type\":\"text\",\"text\":\"A\","
             "\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":\"text\",\"text\":\"B\"}],"
             "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},"
             "{\"type\":\"text\",\"text\":\"y\"}]},{\"role\":\"user\",\"content\":\"z\"}],"
             "\"temperature\":0.5,\"top_p\":0.75,\"top_k\":9,\"stop_sequences\":[\"END\",\"##\"],"
             "\"stream\":true,\"metadata\":{\"user_id\":\"u\"},\"thinking\":{\"type\":\"enabled\","
             "\"budget_tokens\":1024}}",
     .finish = FINISH_STOP,
     .stop = "END",
     .events = {CASE_TEXT("up to ")}},
    {.name = "blocks",
     .body =
         "{\"model\":\"tiny\",\"max_tokens\":50,\"system\":\"S\",\"messages\":["
         "{\"role\":\"user\",\"content\":\"weather?\"},"
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\","
         "\"signature\":\"\"},{\"type\":\"text\",\"text\":\"I look.\"},{\"type\":\"tool_use\","
         "\"id\":\"t1\",\"name\":\"get_weather\",\"input\":{\"city\":\"Rome\"}},{\"type\":"
         "\"tool_use\",\"id\":\"t2\",\"name\":\"now\",\"input\":{}}]},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
         "\"content\":\"sunny\"},{\"type\":\"tool_result\",\"tool_use_id\":\"t2\",\"content\":"
         "[{\"type\":\"text\",\"text\":\"no\"},{\"type\":\"text\",\"text\":\"on\"}],\"is_error\":"
         "false},{\"type\":\"text\",\"text\":\"And?\"}]}]," ANTHROPIC_TOOLS
         ",\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("Fine.")}},
    {.name = "calls",
     .body = "{\"model\":\"tiny\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":"
             "\"w\"}],\"tool_choice\":{\"type\":\"any\"}," ANTHROPIC_TOOLS "}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("I look."), CASE_TOOL(0, "get_weather"), CASE_ARGS(0, "{\"city\":"),
                CASE_ARGS(0, " \"Rome\"}"), CASE_TOOL(1, "now"), CASE_ARGS(1, "{}"),
                CASE_TEXT("Done.")}},
    {.name = "named_tool_cut_off",
     .body = "{\"model\":\"tiny\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":"
             "\"w\"}],\"tool_choice\":{\"type\":\"tool\",\"name\":\"now\"}," ANTHROPIC_TOOLS "}",
     .finish = FINISH_LENGTH,
     .events = {CASE_TOOL(0, "now"), CASE_ARGS(0, "{\"zone\": \"U")}},
    {.name = "prefill_no_text",
     .body = "{\"model\":\"tiny\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":"
             "\"w\"},{\"role\":\"assistant\",\"content\":\"The answer is (\"}],\"tool_choice\":"
             "{\"type\":\"none\"}," ANTHROPIC_TOOLS "}",
     .finish = FINISH_STOP},
    {.name = "thoughts",
     .body = "{\"model\":\"tiny\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":"
             "\"w\"}],\"thinking\":{\"type\":\"adaptive\"}," ANTHROPIC_TOOLS "}",
     .finish = FINISH_STOP,
     .events = {CASE_THOUGHT("Hm,"), CASE_THOUGHT(" \"so\"\n\xc3\xa9."), CASE_TEXT("I look."),
                CASE_TOOL(0, "now"), CASE_ARGS(0, "{}")}},
    {.name = "thoughts_alone",
     .body = "{\"model\":\"tiny\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":"
             "\"w\"}],\"thinking\":{\"type\":\"disabled\"}}",
     .finish = FINISH_LENGTH,
     .events = {CASE_THOUGHT("Hm")}},
    {.name = "failed",
     .body = "{\"model\":\"tiny\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":"
             "\"w\"}]}",
     .finish = FINISH_NONE,
     .events = {CASE_TEXT("Hel")}},
};

static const struct codec_case anthropic_count_cases[] = {
    {.name = "count",
     .body = "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"w\"}]}",
     .finish = FINISH_STOP},
};

#define OLLAMA_TOOLS                                                                               \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":"    \
    "\"Weather\",\"parameters\":{\"type\":\"object\"}}},{\"type\":\"function\",\"function\":"      \
    "{\"name\":\"now\"}}]"

static const struct codec_case ollama_chat_cases[] = {
    {.name = "text",
     .body = "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("Hello"), CASE_TEXT(" \"you\"\n\xc3\xa9")}},
    {.name = "settings",
     .body =
         "{\"model\":\"tiny\",\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":"
         "\"user\",\"content\":\"Hi\"}],\"stream\":false,\"format\":\"\",\"keep_alive\":\"5m\","
         "\"think\":false,\"options\":{\"temperature\":0,\"top_k\":7,\"top_p\":0.5,\"min_p\":0.25,"
         "\"typical_p\":0.75,\"repeat_penalty\":1.5,\"repeat_last_n\":-1,\"presence_penalty\":0.5,"
         "\"frequency_penalty\":-0.5,\"seed\":42,\"num_predict\":16,\"stop\":[\"a\",\"b\"],"
         "\"num_ctx\":4096}}",
     .finish = FINISH_LENGTH,
     .events = {CASE_TEXT("cut")}},
    {.name = "calls_before",
     .body = "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"w\"},{\"role\":"
             "\"assistant\",\"content\":\"\",\"thinking\":\"hm\",\"tool_calls\":[{\"function\":"
             "{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Rome\"}}},{\"id\":\"x\","
             "\"function\":{\"name\":\"now\",\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_name\":"
             "\"get_weather\",\"content\":\"sunny\"},{\"role\":\"tool\",\"tool_call_id\":\"x\","
             "\"content\":\"noon\"}],\"think\":\"high\",\"options\":{\"num_predict\":-2,\"stop\":"
             "\"z\"}," OLLAMA_TOOLS "}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("Fine.")}},
    {.name = "calls",
     .body =
         "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"w\"}]," OLLAMA_TOOLS
         "}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("I look."), CASE_TOOL(0, "get_weather"), CASE_ARGS(0, "{\"city\":"),
                CASE_ARGS(0, "\n \"Rome\"}"), CASE_TOOL(1, "now"), CASE_ARGS(1, "{}"),
                CASE_TEXT("Done.")}},
    {.name = "call_cut_off",
     .body =
         "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"w\"}]," OLLAMA_TOOLS
         "}",
     .finish = FINISH_LENGTH,
     .events = {CASE_TOOL(0, "now"), CASE_ARGS(0, "{\"zone\": \"U")}},
    {.name = "thoughts",
     .body = "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"w\"}],"
             "\"think\":true," OLLAMA_TOOLS "}",
     .finish = FINISH_STOP,
     .events = {CASE_THOUGHT("Hm,"), CASE_THOUGHT(" \"so\"\n\xc3\xa9."), CASE_TEXT("I look."),
                CASE_TOOL(0, "now"), CASE_ARGS(0, "{}")}},
    {.name = "load", .body = "{\"model\":\"tiny\",\"messages\":[]}", .is_load = true},
    {.name = "failed",
     .body = "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"w\"}]}",
     .finish = FINISH_NONE,
     .events = {CASE_TEXT("Hel")}},
};

static const struct codec_case ollama_generate_cases[] = {
    {.name = "text",
     .body = "{\"model\":\"tiny\",\"prompt\":\"Why?\",\"system\":\"S\"}",
     .finish = FINISH_STOP,
     .events = {CASE_TEXT("Because"), CASE_TEXT(" \"so\".")}},
    {.name = "raw",
     .body =
         "{\"model\":\"tiny\",\"prompt\":\"Once \",\"raw\":true,\"stream\":false,\"think\":true}",
     .finish = FINISH_LENGTH,
     .events = {CASE_TEXT("upon")}},
    {.name = "thoughts",
     .body = "{\"model\":\"tiny\",\"prompt\":\"Why?\",\"think\":\"low\"}",
     .finish = FINISH_STOP,
     .events = {CASE_THOUGHT("Hm,"), CASE_THOUGHT(" so."), CASE_TEXT("Because.")}},
    {.name = "load", .body = "{\"model\":\"tiny\"}", .is_load = true},
    {.name = "failed", .body = "{\"model\":\"tiny\",\"prompt\":\"Why?\"}", .finish = FINISH_NONE},
};

#endif
