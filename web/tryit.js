// tryit.js - a small load for newcomers, the live switch of the policy, and two policies compared.
import {errorNote, getJson, hasPath, postJson, send} from './api.js';
import {engineState, liveRecording, ofModel} from './bus.js';
import {arrivalsOf, showComparison} from './compare.js';
import {makeId} from './conversation.js';
import {button, el, fill, plural, saveFile, say} from './dom.js';

const REQUESTS = 24;
const APART_MS = 400;
const ASK_MS = 500;
const MINUTE_US = 60e6;

const WORDS = ('the bus stops where people wait and goes on when all have a seat a driver knows ' +
               'the road and the time rain falls on the roof while a child counts the houses')
                  .split(' ');

const someText = (words) =>
    Array.from({length: words}, () => WORDS[Math.floor(Math.random() * WORDS.length)]).join(' ');

const system = {
    role: 'system',
    content:
        'You are a helpful assistant. Answer briefly and clearly. ' + WORDS.slice(0, 20).join(' ')
};

/** Chat, reading and writing in turns. */
function tryBody(i) {
    const kinds = [
        {
            messages: [system, {role: 'user', content: `What is number ${i}? ${someText(8)}`}],
            max_tokens: 48
        },
        {messages: [{role: 'user', content: `Summarise: ${someText(450)}`}], max_tokens: 16},
        {
            messages: [{role: 'user', content: `Write a story about ${someText(4)}.`}],
            max_tokens: 200,
            ignore_eos: true
        },
    ];
    return kinds[i % kinds.length];
}

let load = null; // {ids, done, isStopped}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function sendLoad(show) {
    const mine = load = {sent: [], done: 0, failed: 0, isStopped: false};
    const model = engineState().model;
    const answered = (async () => {
        for (let i = 0; i < REQUESTS && !mine.isStopped;) {
            if (i >= mine.sent.length) {
                await pause(ASK_MS);
                continue;
            }
            const {status} =
                await getJson(`/v1/requests/${mine.sent[i]}?after=1000000&wait_ms=${ASK_MS}`);
            if (status === 'queued' || status === 'in_progress') continue;
            if (status !== 'completed') mine.failed++;
            mine.done++;
            i++;
            show();
        }
    })();
    for (let i = 0; i < REQUESTS && !mine.isStopped; i++) {
        const id = makeId();
        await send('POST', '/v1/chat/completions', {
            body: {...tryBody(i), model},
            headers: {prefer: 'respond-async', 'x-request-id': id},
        });
        mine.sent.push(id);
        show();
        await pause(APART_MS);
    }
    await answered;
}

function stopLoad() {
    load.isStopped = true;
    for (const id of load.sent.slice(load.done))
        send('DELETE', `/v1/requests/${id}`, {quiet: true}).catch(() => {});
}

function loadRow() {
    const status = el('span', {class: 'count', role: 'status'});
    const show = () => {
        status.textContent = `${load.done} of ${load.sent.length} answered` +
            `${load.failed ? `, ${load.failed} failed` : ''}${load.isStopped ? ', stopped' : ''}.`;
    };
    const start = button('Send a small load', async () => {
        start.hidden = true;
        stop.hidden = false;
        try {
            await sendLoad(show);
        } catch (error) {
            say(error.message);
        }
        start.hidden = false;
        stop.hidden = true;
        show();
    }, {class: 'primary', id: 'try-load'});
    const stop = button('Stop the load', () => {
        stopLoad();
        show();
    }, {hidden: true});
    return el('div', {class: 'row'}, start, stop, status);
}

// ---- policies ----

function policySelect(id, label) {
    const select = el('select', {id});
    return [el('div', {class: 'field inline'}, el('label', {'for': id}, label), select), select];
}

function showPolicies(select, policies, current) {
    if (select.options.length === policies.length) return;
    fill(select, policies.map((p) => el('option', {value: p.name, title: p.summary}, p.name)));
    select.value = current;
}

function policyRow(onState) {
    const [field, select] = policySelect('policy', 'Policy');
    const summary = el('p', {class: 'help'});
    let chosen = null;
    const describe = () => {
        const found = (engineState().policies || []).find((p) => p.name === select.value);
        summary.textContent = found ? found.summary : '';
    };
    select.addEventListener('change', () => {
        chosen = select.value;
        describe();
    });
    const apply = button('Switch', async () => {
        try {
            const now = await postJson(ofModel('/v1/engine/policy'), {policy: select.value});
            chosen = null;
            say(`The policy is now ${now.policy}. Running requests go on.`);
        } catch (error) {
            say(error.message);
        }
    }, {id: 'switch-policy'});
    onState((state) => {
        showPolicies(select, state.policies, state.policy);
        if (chosen === null) select.value = state.policy;
        describe();
    });
    return [el('div', {class: 'row'}, field, apply), summary];
}

// ---- the last minute ----

/** The steps of the last minute; null: no request arrived in them. */
function lastMinute() {
    const recording = liveRecording();
    if (!recording || !recording.steps.length) return null;
    const from = recording.steps.at(-1).at_us - MINUTE_US;
    const steps = recording.steps.filter((s) => s.at_us >= from);
    return steps.some((s) => s.arrived) ? {...recording, steps} : null;
}

/** As `jitney replay` reads them. */
function saveRequests() {
    const recording = lastMinute();
    if (!recording) return say('No request arrived in the last minute. Send a small load first.');
    saveFile('requests.json', 'application/json', JSON.stringify(arrivalsOf(recording)) + '\n');
}

const requestsRow = () =>
    el('div', {class: 'row'}, button('Save the requests of the last minute', saveRequests),
       el('span', {class: 'count'},
          'for jitney replay --sim, which runs them with any policy and knobs.'));

// ---- what if ----

function compareRow(onState) {
    const [fieldA, a] = policySelect('compare-a', 'Compare');
    const [fieldB, b] = policySelect('compare-b', 'with');
    const place = el('div', {'aria-live': 'polite'});
    const run = button('on the last minute', async () => {
        const recording = lastMinute();
        if (!recording)
            return say('No request arrived in the last minute. Send a small load first.');
        fill(place, el('p', {class: 'note'}, 'Simulating both policies.'));
        run.disabled = true; // one answer at a time
        try {
            const answer = await postJson(
                ofModel('/v1/engine/whatif'),
                {recording: arrivalsOf(recording), policies: [a.value, b.value]});
            showComparison(place, answer, recording.hello);
        } catch (error) {
            fill(place, errorNote(error));
        } finally {
            run.disabled = false;
        }
    }, {id: 'compare'});
    onState((state) => {
        showPolicies(a, state.policies, state.policy);
        const other = state.policy === 'static' ? 'chunked' : 'static'; // which differ most
        showPolicies(b, state.policies, other);
    });
    return [el('div', {class: 'row'}, fieldA, fieldB, run), place];
}

/** The panel below the picture. */
export function makeTryPanel(place) {
    const listeners = [];
    const onState = (f) => listeners.push(f);
    const policies = el('div', {hidden: true}, policyRow(onState));
    const comparing = el('div', {hidden: true}, compareRow(onState));
    fill(
        place, el('h2', {}, 'Try it'),
        el('p', {},
           `${plural(REQUESTS, 'request')} in ten seconds: questions, long texts to read, ` +
               'long answers to write. Watch them take their seats.'),
        loadRow(), policies, comparing, requestsRow());
    document.addEventListener('enginestate', async () => {
        const state = engineState();
        policies.hidden = !state.policies || !await hasPath('/v1/engine/policy');
        comparing.hidden = !state.policies || !await hasPath('/v1/engine/whatif');
        if (state.policies)
            for (const f of listeners) f(state);
    });
}
