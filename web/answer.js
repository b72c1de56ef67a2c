// answer.js - one answer on its way: asking for it, going on after a reload, stopping it.
//
// The page chooses the request's id and asks the server to go on if the page goes away
// (x-jitney-keep). The message keeps the number of the last event that it has seen, so that a
// page that was loaded again continues exactly there.
import {ApiError, send, stream} from './api.js';
import {makeId, promptMessages} from './conversation.js';
import {samplingOf} from './sampling.js';

export const underWay = new Map(); // message id -> AbortController

/** The body of the request for an answer to the branch that ends with `parent`. */
export function answerBody(chat, parent, model, seed) {
    const {seed: _, ...sampling} = samplingOf(chat);
    return {
        model: model || undefined,
        messages: promptMessages(chat, parent),
        ...sampling,
        seed,
        stream: true,
        stream_options: {include_usage: true},
        reasoning_format: 'none', // the page shows an answer as one text
    };
}

/** Members of a new message that will receive an answer. */
export function newAnswer(chat, model) {
    const wanted = samplingOf(chat).seed;
    return {
        state: 'running',
        request: makeId(),
        event: 0,
        model,
        began: Date.now(),
        seed: wanted >= 0 ? wanted : Math.floor(Math.random() * 2 ** 31),
        sampling: samplingOf(chat),
        system: chat.system,
    };
}

function takeChunk(node, chunk) {
    if (chunk.error)
        throw new ApiError(chunk.error.message, chunk.error.status || 500, chunk.error.code);
    const choice = chunk.choices && chunk.choices[0];
    if (choice && choice.delta && choice.delta.content) {
        if (!node.first) node.first = Date.now();
        node.last = Date.now();
        node.text += choice.delta.content;
    }
    if (choice && choice.finish_reason) node.finish = choice.finish_reason;
    if (chunk.usage) node.usage = chunk.usage;
}

function endAnswer(node, state, error) {
    node.state = state;
    node.ended = Date.now();
    if (error) node.error = error;
}

function causeOf(error) {
    if (error.status === 404 && error.code === 'request_not_found')
        return 'The server does not have this answer any more. Ask for it again.';
    return error.message;
}

/**
 * Receives the answer of `node`; `onProgress` is called after every event and at the end. `isNew`:
 * the server has not been asked before.
 */
export async function receiveAnswer(chat, node, isNew, onProgress) {
    const abort = new AbortController();
    underWay.set(node.id, abort);
    const onEvent = ({id, data}) => {
        if (id) node.event = Number(id);
        if (data !== '[DONE]') takeChunk(node, JSON.parse(data));
        onProgress();
    };
    const options = {signal: abort.signal};
    try {
        for (let tries = 0;; tries++) {
            try {
                if (isNew && tries === 0) {
                    await stream(
                        'POST', '/v1/chat/completions', {
                            ...options,
                            body: answerBody(chat, node.parent, node.model, node.seed),
                            headers: {'x-request-id': node.request, 'x-jitney-keep': 'true'},
                        },
                        onEvent);
                } else {
                    node.isResumed = true;
                    await stream(
                        'GET', `/v1/requests/${node.request}`, {
                            ...options,
                            headers: {'last-event-id': String(node.event)},
                        },
                        onEvent);
                }
                if (node.finish) break;
                throw new ApiError('The stream ended before the answer did.', 0, 'broken');
            } catch (error) {
                if (error.name === 'AbortError' || error.status !== 0 || tries >= 5) throw error;
                await new Promise((resolve) => setTimeout(resolve, 300 * (tries + 1)));
            }
        }
        endAnswer(node, 'done');
    } catch (error) {
        if (error.name === 'AbortError')
            endAnswer(node, 'stopped');
        else
            endAnswer(node, 'failed', causeOf(error));
    } finally {
        underWay.delete(node.id);
        onProgress();
    }
}

export function stopAnswer(node) {
    const abort = underWay.get(node.id);
    if (!abort) return;
    send('DELETE', `/v1/requests/${node.request}`, {quiet: true}).catch(() => {});
    abort.abort();
}

/**
 * The tokens of an answer with the alternatives at each place. The same request with the same seed
 * gives the same answer, so the server is asked once more, this time with probabilities.
 */
export async function askProbabilities(chat, node, signal) {
    const messages = promptMessages({...chat, system: node.system || ''}, node.parent);
    const {seed: _, ...sampling} = node.sampling;
    const response = await send('POST', '/v1/chat/completions', {
        signal,
        body: {
            model: node.model || undefined,
            messages,
            ...sampling,
            seed: node.seed,
            max_tokens:
                Math.max(1, (node.usage && node.usage.completion_tokens) || sampling.max_tokens),
            logprobs: true,
            top_logprobs: 5
        },
    });
    const choice = (await response.json()).choices[0];
    return {
        tokens: (choice.logprobs && choice.logprobs.content) || [],
        text: choice.message.content
    };
}
