// api.js - the server's paths: keys, errors in words, streams.
import {el, byId, fill} from './dom.js';
import {readEvents} from './sse.js';

const KEY_NAME = 'jitney.key'; // sessionStorage: this tab only, gone when it closes

/** What the server or the network refused; `message` is a sentence for people. */
export class ApiError extends Error {
    constructor(message, status, code) {
        super(message);
        this.status = status;
        this.code = code;
    }
}

function storedKey() {
    try {
        return sessionStorage.getItem(KEY_NAME) || '';
    } catch {
        return '';
    }
}

function requestHeaders(extra) {
    const key = storedKey();
    return key ? {...extra, authorization: `Bearer ${key}`} : {...extra};
}

async function errorOf(response) {
    let error = {};
    try {
        error = (await response.json()).error || {};
    } catch {
        // not JSON: a proxy in between has answered
    }
    const wait = Number(response.headers.get('retry-after'));
    let message = error.message || `The server answered with status ${response.status}.`;
    if (response.status === 429 || response.status === 503)
        message += wait ? ` Try again in ${wait} s.` : '';
    return new ApiError(message, response.status, error.code);
}

let keyQuestion = null; // one dialog, however many requests were refused

/** Asks for a key; resolves to whether one was given. */
export function askForKey(reason) {
    if (keyQuestion) return keyQuestion;
    const dialog = byId('key-dialog');
    byId('key-reason').textContent = reason;
    keyQuestion = new Promise((resolve) => {
        dialog.addEventListener('close', () => {
            const key = byId('key-input').value.trim();
            byId('key-input').value = '';
            keyQuestion = null;
            if (dialog.returnValue !== 'ok' || !key) return resolve(false);
            sessionStorage.setItem(KEY_NAME, key);
            resolve(true);
        }, {once: true});
        byId('key-cancel').onclick = () => dialog.close('');
        dialog.returnValue = '';
        dialog.showModal();
    });
    return keyQuestion;
}

export const hasKey = () => storedKey() !== '';

export function forgetKey() { sessionStorage.removeItem(KEY_NAME); }

const keyReason = (refused) => refused.code === 'invalid_api_key' ?
    'The server does not know the key that this tab has. Enter another one.' :
    'Enter a key that the operator of the server has given you.';

/** The response, if its status is below 400. Asks for a key if the server wants one. */
export async function send(method, path, {body, headers = {}, signal, quiet = false} = {}) {
    for (;;) {
        const extra =
            body === undefined ? headers : {...headers, 'content-type': 'application/json'};
        let response;
        try {
            response = await fetch(path, {
                method,
                signal,
                cache: 'no-store',
                headers: requestHeaders(extra),
                body: body === undefined ? undefined : JSON.stringify(body),
            });
        } catch (error) {
            if (error.name === 'AbortError') throw error;
            throw new ApiError(
                'The server cannot be reached. Is it still running?', 0, 'unreachable');
        }
        if (response.ok) return response;
        const refused = await errorOf(response);
        if (response.status === 401 && !quiet && await askForKey(keyReason(refused))) continue;
        throw refused;
    }
}

export async function getJson(path, options) { return (await send('GET', path, options)).json(); }

export async function postJson(path, body, options) {
    return (await send('POST', path, {...options, body})).json();
}

let knownPaths = null;

/** Whether this server has a path; its own document says so. */
export async function hasPath(path) {
    if (!knownPaths) knownPaths = getJson('/openapi.json').then((d) => d.paths, () => ({}));
    return path in await knownPaths;
}

/** Reads a stream of events; an event whose data has an error ends it with that error. */
export async function stream(method, path, options, onEvent) {
    const response = await send(method, path, {
        ...options,
        headers: {accept: 'text/event-stream', ...options.headers},
    });
    try {
        await readEvents(response.body, onEvent);
    } catch (error) {
        if (error.name === 'AbortError' || error instanceof ApiError) throw error;
        throw new ApiError('The connection to the server broke.', 0, 'broken');
    }
}

/** A paragraph that shows an error; `retry` adds a button. */
export function errorNote(error, retry) {
    const note = el('p', {class: 'error', role: 'alert'}, error.message);
    if (retry) note.append(' ', el('button', {type: 'button', onclick: retry}, 'Try again'));
    return note;
}

export function showError(place, error, retry) { fill(place, errorNote(error, retry)); }
