/* api/openapi_schemas.c - the shape of every answer. See api/openapi.h.
 *
 * Each row has ' in place of ". A member that is always there is required; one that may be added
 * later is not forbidden, as clients must expect of any server of this kind.
 */
#include "api/openapi.h"

#define INT "{'type':'integer','minimum':0}"
#define REAL "{'type':'number'}"
#define TEXT "{'type':'string'}"
#define BOOL "{'type':'boolean'}"
#define OBJECT "{'type':'object'}"
#define INT_OR_NULL "{'type':['integer','null']}"
#define METADATA                                                                                   \
    "{'type':['object','null'],'maxProperties':16,'propertyNames':{'maxLength':64},"               \
    "'additionalProperties':{'type':'string','maxLength':512}}"
#define TEXT_OR_NULL "{'type':['string','null']}"
#define CONST(word) "{'const':'" word "'}"
#define LIST(of) "{'type':'array','items':" of "}"
#define REF(name) "{'$ref':'#/components/schemas/" name "'}"
#define REF_OR_NULL(name) "{'anyOf':[" REF(name) ",{'type':'null'}]}"
#define MAP(required, members)                                                                     \
    "{'type':'object','required':[" required "],'properties':{" members "}}"

/* A page of a list, as api/object_page.h writes it. */
#define PAGE_OF(name)                                                                              \
    MAP("'object','data','first_id','last_id','has_more'",                                         \
        "'object':" CONST("list") ",'data':" LIST(REF(name)) ",'first_id':" TEXT_OR_NULL           \
                                                             ",'last_id':" TEXT_OR_NULL            \
                                                             ",'has_more':" BOOL)

#define FINISH "{'enum':['stop','length','tool_calls','content_filter']}"
#define FINISH_OR_NULL "{'enum':['stop','length','tool_calls','content_filter',null]}"
#define FINGERPRINT "'system_fingerprint':" TEXT
#define DURATIONS                                                                                  \
    "'total_duration':" INT ",'load_duration':" INT ",'prompt_eval_count':" INT                    \
    ",'prompt_eval_duration':" INT ",'eval_count':" INT ",'eval_duration':" INT

/* clang-format off */
const struct openapi_schema openapi_schemas[] = {
    /* --- OpenAI --- */
    {"Error", MAP("'error'", "'error':" MAP("'message','type','param','code'",
        "'message':{'type':'string','minLength':1},'type':" TEXT ",'param':" TEXT_OR_NULL
        ",'code':" TEXT_OR_NULL))},
    {"Model", MAP("'id','object','created','owned_by'",
        "'id':" TEXT ",'object':" CONST("model") ",'created':" INT ",'owned_by':" TEXT
        ",'max_model_len':" INT)},
    {"ModelList", MAP("'object','data'", "'object':" CONST("list") ",'data':" LIST(REF("Model")))},
    {"Usage", MAP("'prompt_tokens','completion_tokens','total_tokens'",
        "'prompt_tokens':" INT ",'completion_tokens':" INT ",'total_tokens':" INT
        ",'prompt_tokens_details':" MAP("'cached_tokens'", "'cached_tokens':" INT)
        ",'completion_tokens_details':" MAP("'reasoning_tokens'", "'reasoning_tokens':" INT))},
    {"TopLogprob", MAP("'token','logprob','bytes'", "'token':" TEXT ",'logprob':" REAL
        ",'bytes':{'type':['array','null'],'items':{'type':'integer','minimum':0,'maximum':255}}")},
    {"TokenLogprob", "{'allOf':[" REF("TopLogprob") "," MAP("'top_logprobs'",
        "'top_logprobs':" LIST(REF("TopLogprob"))) "]}"},
    {"ChatLogprobs", MAP("'content'", "'content':{'type':['array','null'],'items':"
        REF("TokenLogprob") "}")},
    {"ToolCall", MAP("'id','type','function'", "'id':" TEXT ",'type':" CONST("function")
        ",'function':" MAP("'name','arguments'", "'name':" TEXT ",'arguments':" TEXT))},
    {"ToolCallPiece", MAP("'index'", "'index':" INT ",'id':" TEXT ",'type':" CONST("function")
        ",'function':" MAP("", "'name':" TEXT ",'arguments':" TEXT))},
    /* cppcheck-suppress unknownMacro ; it does not expand a macro inside its own arguments */
    {"ChatCompletion", MAP("'id','object','created','model','choices','usage'",
        "'id':{'type':'string','pattern':'^chatcmpl-'},'object':" CONST("chat.completion")
        ",'created':" INT ",'model':" TEXT "," FINGERPRINT ",'usage':" REF("Usage")
        ",'choices':" LIST(MAP("'index','message','finish_reason','logprobs'",
            "'index':" INT ",'finish_reason':" FINISH ",'logprobs':" REF_OR_NULL("ChatLogprobs")
            ",'message':" MAP("'role','content'", "'role':" CONST("assistant") ",'content':"
                TEXT_OR_NULL ",'reasoning_content':" TEXT ",'refusal':" TEXT_OR_NULL
                ",'tool_calls':" LIST(REF("ToolCall")))
            ",'token_ids':" LIST("{'type':'integer'}"))))},
    {"ChatChunk", MAP("'id','object','created','model','choices'",
        "'id':{'type':'string','pattern':'^chatcmpl-'},'object':" CONST("chat.completion.chunk")
        ",'created':" INT ",'model':" TEXT "," FINGERPRINT ",'usage':" REF_OR_NULL("Usage")
        ",'choices':" LIST(MAP("'index','delta','finish_reason'",
            "'index':" INT ",'finish_reason':" FINISH_OR_NULL
            ",'logprobs':" REF_OR_NULL("ChatLogprobs")
            ",'delta':" MAP("", "'role':" CONST("assistant") ",'content':" TEXT_OR_NULL
                ",'reasoning_content':" TEXT ",'tool_calls':" LIST(REF("ToolCallPiece"))))))},
    {"TextLogprobs", MAP("'tokens','token_logprobs','top_logprobs','text_offset'",
        "'tokens':" LIST(TEXT) ",'token_logprobs':" LIST("{'type':['number','null']}")
        ",'top_logprobs':{'type':['array','null'],'items':{'type':['object','null']}}"
        ",'text_offset':" LIST(INT))},
    {"Completion", MAP("'id','object','created','model','choices'",
        "'id':{'type':'string','pattern':'^cmpl-'},'object':" CONST("text_completion")
        ",'created':" INT ",'model':" TEXT "," FINGERPRINT ",'usage':" REF_OR_NULL("Usage")
        ",'choices':" LIST(MAP("'index','text','finish_reason','logprobs'",
            "'index':" INT ",'text':" TEXT ",'finish_reason':" FINISH_OR_NULL
            ",'logprobs':" REF_OR_NULL("TextLogprobs"))))},
    {"EmbeddingList", MAP("'object','data','model','usage'",
        "'object':" CONST("list") ",'model':" TEXT
        ",'data':" LIST(MAP("'object','index','embedding'", "'object':" CONST("embedding")
            ",'index':" INT ",'embedding':{'anyOf':[" LIST(REAL)
            ",{'type':'string','contentEncoding':'base64'}]}"))
        ",'usage':" MAP("'prompt_tokens','total_tokens'",
            "'prompt_tokens':" INT ",'total_tokens':" INT))},
    {"ResponseUsage", MAP("'input_tokens','output_tokens','total_tokens','input_tokens_details',"
        "'output_tokens_details'",
        "'input_tokens':" INT ",'output_tokens':" INT ",'total_tokens':" INT
        ",'input_tokens_details':" MAP("'cached_tokens'", "'cached_tokens':" INT)
        ",'output_tokens_details':" MAP("'reasoning_tokens'", "'reasoning_tokens':" INT))},
    {"ResponseItem", MAP("'type','id','status'", "'id':" TEXT ",'type':"
        "{'enum':['reasoning','message','function_call']},'status':{'enum':['in_progress',"
        "'completed','incomplete']},'role':" CONST("assistant")
        ",'summary':" LIST(OBJECT)
        ",'content':" LIST("{'oneOf':["
            MAP("'type','text','annotations'", "'type':" CONST("output_text")
            ",'text':" TEXT ",'annotations':" LIST(OBJECT) ",'logprobs':" LIST(OBJECT)) ","
            MAP("'type','text'", "'type':" CONST("reasoning_text") ",'text':" TEXT) "]}")
        ",'call_id':" TEXT ",'name':" TEXT ",'arguments':" TEXT)},
    {"Response", MAP("'id','object','created_at','status','model','output','error',"
        "'incomplete_details','usage','tools','tool_choice','parallel_tool_calls'",
        "'id':{'type':'string','pattern':'^resp_'},'object':" CONST("response")
        ",'created_at':{'type':'number'},'model':" TEXT ",'status':{'enum':['in_progress',"
        "'completed','incomplete','failed','cancelled','queued']},'output':"
        LIST(REF("ResponseItem")) ",'error':{'type':['object','null']},"
        "'incomplete_details':{'type':['object','null']},'usage':" REF_OR_NULL("ResponseUsage"))},
    {"ResponseEvent", MAP("'type','sequence_number'",
        "'type':{'type':'string','pattern':'^(response[.]|error)'},'sequence_number':" INT
        ",'response':" REF("Response") ",'delta':" TEXT ",'item':" REF("ResponseItem"))},

    {"ChatCompletionList", PAGE_OF("ChatCompletion")},
    {"ChatMessage", MAP("'id','role','content','name','content_parts'",
        "'id':" TEXT ",'role':" TEXT ",'content':{'type':['string','null']},"
        "'name':{'type':['string','null']},'content_parts':{'type':['array','null']}")},
    {"ChatMessageList", PAGE_OF("ChatMessage")},
    {"Item", MAP("'id','type'", "'id':" TEXT ",'type':{'enum':['message','reasoning',"
        "'function_call','function_call_output']},'status':{'enum':['in_progress','completed',"
        "'incomplete']},'role':" TEXT ",'content':" LIST(OBJECT) ",'call_id':" TEXT ",'name':" TEXT
        ",'arguments':" TEXT)},
    {"ItemList", PAGE_OF("Item")},
    {"Conversation", MAP("'id','object','created_at','metadata'",
        "'id':" TEXT ",'object':" CONST("conversation") ",'created_at':" INT ",'metadata':"
        METADATA)},
    {"Deleted", MAP("'id','object','deleted'", "'id':" TEXT ",'object':{'enum':['file','response',"
        "'conversation.deleted','chat.completion.deleted']},'deleted':{'const':true}")},
    {"File", MAP("'id','object','bytes','created_at','filename','purpose','status'",
        "'id':" TEXT ",'object':" CONST("file") ",'bytes':" INT ",'created_at':" INT
        ",'expires_at':" INT_OR_NULL ",'filename':" TEXT ",'purpose':" TEXT
        ",'status':" CONST("processed") ",'status_details':" TEXT_OR_NULL)},
    {"FileList", PAGE_OF("File")},
    {"Batch", MAP("'id','object','endpoint','input_file_id','completion_window','status',"
        "'created_at'",
        "'id':" TEXT ",'object':" CONST("batch") ",'endpoint':" TEXT ",'model':" TEXT_OR_NULL
        ",'errors':{'type':['object','null']},'input_file_id':" TEXT ",'completion_window':" TEXT
        ",'status':{'enum':['validating','failed','in_progress','finalizing','completed',"
        "'expired','cancelling','cancelled']},'output_file_id':" TEXT_OR_NULL
        ",'error_file_id':" TEXT_OR_NULL ",'created_at':" INT ",'in_progress_at':" INT_OR_NULL
        ",'expires_at':" INT_OR_NULL ",'finalizing_at':" INT_OR_NULL
        ",'completed_at':" INT_OR_NULL ",'failed_at':" INT_OR_NULL ",'expired_at':" INT_OR_NULL
        ",'cancelling_at':" INT_OR_NULL ",'cancelled_at':" INT_OR_NULL
        ",'request_counts':" MAP("'total','completed','failed'",
            "'total':" INT ",'completed':" INT ",'failed':" INT)
        ",'usage':" OBJECT ",'metadata':{'type':['object','null']}")},
    {"BatchList", PAGE_OF("Batch")},
    {"MetadataRequest", MAP("'metadata'", "'metadata':" METADATA)},
    {"ConversationRequest", MAP("", "'metadata':" METADATA
        ",'items':{'type':['array','null'],'maxItems':20,'items':" OBJECT "}")},
    {"ItemsRequest", MAP("'items'",
        "'items':{'type':'array','minItems':1,'maxItems':20,'items':" OBJECT "}")},
    {"FileRequest", MAP("'file','purpose'",
        "'file':{'type':'string','contentMediaType':'application/octet-stream'},'purpose':{'enum':"
        "['assistants','batch','fine-tune','vision','user_data','evals']},"
        "'expires_after[anchor]':" CONST("created_at")
        ",'expires_after[seconds]':{'type':'integer','minimum':3600,'maximum':2592000}")},
    {"BatchRequest", MAP("'input_file_id','endpoint','completion_window'",
        "'input_file_id':{'type':'string','minLength':1,'maxLength':256},'endpoint':{'enum':"
        "['/v1/chat/completions','/v1/completions','/v1/embeddings','/v1/responses']},"
        "'completion_window':{'type':'string','pattern':'^[0-9]+[smhd]$'},'metadata':" METADATA
        ",'output_expires_after':{'anyOf':[" MAP("'anchor','seconds'",
            "'anchor':" CONST("created_at")
            ",'seconds':{'type':'integer','minimum':3600,'maximum':2592000}")
        ",{'type':'null'}]}")},

    /* --- Anthropic --- */
    {"MessageBatch", MAP("'id','type','processing_status','request_counts','created_at',"
        "'expires_at'",
        "'id':" TEXT ",'type':" CONST("message_batch")
        ",'processing_status':{'enum':['in_progress','canceling','ended']},'request_counts':"
        MAP("'processing','succeeded','errored','canceled','expired'",
            "'processing':" INT ",'succeeded':" INT ",'errored':" INT ",'canceled':" INT
            ",'expired':" INT)
        ",'created_at':" TEXT ",'expires_at':" TEXT ",'ended_at':" TEXT_OR_NULL
        ",'cancel_initiated_at':" TEXT_OR_NULL ",'archived_at':" TEXT_OR_NULL
        ",'results_url':" TEXT_OR_NULL)},
    {"MessageBatchList", MAP("'data','has_more','first_id','last_id'",
        "'data':" LIST(REF("MessageBatch")) ",'has_more':" BOOL ",'first_id':" TEXT_OR_NULL
        ",'last_id':" TEXT_OR_NULL)},
    {"MessageBatchDeleted", MAP("'id','type'",
        "'id':" TEXT ",'type':" CONST("message_batch_deleted"))},
    {"MessageBatchRequest", MAP("'requests'",
        "'requests':{'type':'array','minItems':1,'maxItems':100000,'items':"
        MAP("'custom_id','params'",
            "'custom_id':{'type':'string','pattern':'^[a-zA-Z0-9_-]{1,64}$'},'params':"
            REF("MessageRequest")) "}")},
    {"AnthropicError", MAP("'type','error'", "'type':" CONST("error")
        ",'error':" MAP("'type','message'", "'type':" TEXT ",'message':" TEXT
            ",'details':{'type':'object'}")
        ",'request_id':" TEXT_OR_NULL)},
    {"ContentBlock", "{'oneOf':["
        MAP("'type','text'", "'type':" CONST("text") ",'text':" TEXT) ","
        MAP("'type','thinking','signature'", "'type':" CONST("thinking") ",'thinking':" TEXT
            ",'signature':" TEXT) ","
        MAP("'type','id','name','input'", "'type':" CONST("tool_use") ",'id':" TEXT ",'name':"
            TEXT ",'input':" OBJECT) "]}"},
    {"MessageUsage", MAP("'input_tokens','output_tokens'", "'input_tokens':" INT
        ",'output_tokens':" INT ",'cache_read_input_tokens':{'type':['integer','null']}"
        ",'cache_creation_input_tokens':{'type':['integer','null']}")},
    {"Message", MAP("'id','type','role','model','content','stop_reason','stop_sequence','usage'",
        "'id':{'type':'string','pattern':'^msg_'},'type':" CONST("message") ",'role':"
        CONST("assistant") ",'model':" TEXT ",'content':" LIST(REF("ContentBlock"))
        ",'stop_reason':{'enum':['end_turn','max_tokens','stop_sequence','tool_use','refusal',"
        "null]},'stop_sequence':" TEXT_OR_NULL ",'usage':" REF("MessageUsage"))},
    {"MessageEvent", MAP("'type'", "'type':{'enum':['message_start','content_block_start','ping',"
        "'content_block_delta','content_block_stop','message_delta','message_stop','error']},"
        "'index':" INT ",'message':" REF("Message") ",'delta':" OBJECT
        ",'content_block':" REF("ContentBlock"))},
    {"TokenCount", MAP("'input_tokens'", "'input_tokens':" INT)},

    /* --- Ollama --- */
    {"OllamaError", MAP("'error'", "'error':" TEXT)},
    {"OllamaChat", MAP("'model','created_at','message','done'",
        "'model':" TEXT ",'created_at':{'type':'string','format':'date-time'},'done':" BOOL
        ",'done_reason':" TEXT "," DURATIONS
        ",'message':" MAP("'role','content'", "'role':" CONST("assistant") ",'content':" TEXT
            ",'thinking':" TEXT
            ",'tool_calls':" LIST(MAP("'function'", "'function':" MAP("'name','arguments'",
                "'name':" TEXT ",'arguments':" OBJECT)))))},
    {"OllamaGenerate", MAP("'model','created_at','response','done'",
        "'model':" TEXT ",'created_at':{'type':'string','format':'date-time'},'done':" BOOL
        ",'response':" TEXT ",'thinking':" TEXT ",'done_reason':" TEXT "," DURATIONS)},
    {"OllamaModel", MAP("'name','model','modified_at','size','digest','details'",
        "'name':" TEXT ",'model':" TEXT ",'modified_at':" TEXT ",'size':" INT ",'digest':" TEXT
        ",'details':" OBJECT)},
    {"OllamaModels", MAP("'models'", "'models':" LIST(REF("OllamaModel")))},
    {"OllamaRunning", MAP("'models'", "'models':" LIST(MAP("'name','model'",
        "'name':" TEXT ",'model':" TEXT)))},
    {"OllamaShow", MAP("'details','model_info'", "'details':" OBJECT ",'model_info':" OBJECT
        ",'capabilities':" LIST(TEXT) ",'template':" TEXT)},
    {"OllamaEmbed", MAP("'model','embeddings'", "'model':" TEXT ",'embeddings':" LIST(LIST(REAL)))},
    {"OllamaEmbedding", MAP("'embedding'", "'embedding':" LIST(REAL))},
    {"OllamaVersion", MAP("'version'", "'version':" TEXT)},

    /* --- jitney --- */
    {"Tokens", MAP("'tokens','count','max_model_len'", "'count':" INT ",'max_model_len':" INT
        ",'tokens':" LIST("{'anyOf':[{'type':'integer'}," MAP("'id','piece'",
            "'id':{'type':'integer'},'piece':{}") "]}")
        ",'token_strs':{'type':['array','null'],'items':" TEXT "}")},
    {"Text", MAP("'prompt','content'", "'prompt':" TEXT ",'content':" TEXT)},
    {"Prompt", MAP("'prompt'", "'prompt':" TEXT)},
    {"Health", MAP("'status'", "'status':" TEXT)},
    {"Version", MAP("'version'", "'version':" TEXT)},
    {"Generation", MAP("'id','status'", "'id':" TEXT
        ",'status':{'enum':['queued','in_progress','completed','failed','cancelled']}"
        ",'next':" INT ",'done':" BOOL
        ",'events':" LIST(MAP("'id','event','data'", "'id':" INT ",'event':" TEXT_OR_NULL
            ",'data':{'type':['object','string']}")))},
    {"EngineState", MAP("'jitney','model','now_us','epoch_ms','policy','policies','knobs','seats',"
        "'blocks','tenants','models','requests','step'",
        "'jitney':" TEXT ",'model':" TEXT ",'now_us':" INT ",'epoch_ms':" INT ",'policy':" TEXT
        ",'policies':" LIST(MAP("'name','summary'", "'name':" TEXT ",'summary':" TEXT))
        ",'knobs':" LIST(MAP("'name','value','summary','live'", "'name':" TEXT
            ",'value':{'type':['number','string']},'summary':" TEXT ",'policy':" TEXT
            ",'live':" BOOL))
        ",'seats':" LIST("{'type':['object','null']}")
        ",'blocks':" MAP("'total','block_tokens','map'", "'total':" INT ",'block_tokens':" INT
            ",'map':" LIST("{}"))
        ",'tenants':" LIST(TEXT)
        ",'models':" LIST(MAP("'id','state','start_ms'", "'id':" TEXT ",'state':" TEXT
            ",'start_ms':" OBJECT))
        ",'requests':" LIST(MAP("'request','id','tenant'", "'request':" INT ",'id':" TEXT
            ",'tenant':" INT)) ",'step':" INT)},
    {"EngineRules", MAP("'policy','knobs'", "'policy':" TEXT ",'knobs':" LIST(MAP(
        "'name','value','summary','live'", "'name':" TEXT
        ",'value':{'type':['number','string']},'summary':" TEXT ",'policy':" TEXT
        ",'live':" BOOL)))},
    {"WhatIf", MAP("'model','ctx_tokens','profile','knobs','results'", "'model':" TEXT
        ",'ctx_tokens':" INT ",'profile':" OBJECT ",'knobs':" OBJECT
        ",'results':" LIST(MAP("'policy','figures','steps'", "'policy':" TEXT ",'figures':" OBJECT
            ",'steps':" LIST("{}"))))},
    /* One event of /v1/engine/steps: "hello", "step" or "skipped". */
    {"EngineEvent", "{'type':'object','properties':{'jitney':" TEXT ",'model':" TEXT
        ",'epoch_ms':" INT ",'seats':" INT ",'blocks':{'type':['integer','object']}"
        ",'block_tokens':" INT ",'step':" INT ",'at_us':" INT ",'us':" INT ",'predicted_us':" INT
        ",'target_us':" INT ",'sched_us':" INT ",'policy':" TEXT ",'rows':" LIST("{}")
        ",'waiting':" LIST("{}") ",'arrived':" LIST("{}") ",'admitted':" LIST("{}")
        ",'preempted':" LIST("{}") ",'ended':" LIST("{}") ",'waiting_count':" INT ",'running':" INT
        ",'swapped':" INT ",'moves':" OBJECT ",'from':" INT ",'to':" INT "}}"},
    {"Document", MAP("'openapi','info','paths'", "'openapi':" TEXT ",'info':" OBJECT ",'paths':"
        OBJECT)},
};
/* clang-format on */

const uint32_t openapi_schema_count = sizeof(openapi_schemas) / sizeof(openapi_schemas[0]);
