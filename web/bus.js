// bus.js - the view at #bus: the engine's steps, live or from a recording.
import {ApiError, errorNote, forgetKey, getJson, hasKey, hasPath, send, stream} from './api.js';
import {
    askForFile,
    button,
    byId,
    countText,
    el,
    fill,
    msText,
    plural,
    saveFile,
    say
} from './dom.js';
import {drawBlockMap, Picture, stepTimeText, ZOOMS} from './picture.js';
import {parseRecording, recordingPage, StepStore} from './record.js';
import {REASONS, sequenceName, storyOf} from './story.js';

const HISTORY_STEPS = 2000; // asked for when the view opens
const TEXT_MS = 250; // lists and stories are written this often
const STATE_MS = 1000;
const RETRY_MS = 2000;
const SAME_RUN_MS = 1000; // a server that was started again has another clock

let store = null;
let picture = null;
let isPaused = false;
let isRecorded = false; // from a file: nothing is asked of a server
let liveStore = null; // the steps of the server, also while a recording is shown
let liveState = {};
let watchedModel = ''; // '': the server's first
let watchAbort = null; // ends the stream of steps
let shownVersion = -1;
let isDirty = true;
let parts = {};
export const frameTimes = []; // ms of the last frames, for the tests

// ---- the view ----

function canvasPart(name, label, unitText) {
    const canvas = el('canvas', {role: 'img', 'aria-label': label});
    const scale = el('span', {class: 'count'});
    parts[name] = canvas;
    parts[`${name}Scale`] = scale;
    return el(
        'figure', {class: 'strip'}, el('figcaption', {}, label, scale, unitText || null), canvas);
}

const legendItem = (colour, text) => el('li', {}, el('span', {class: `swatch ${colour}`}), text);

function makeView() {
    const seats = el('canvas', {
        id: 'bus-canvas',
        tabindex: '0',
        role: 'application',
        'aria-label': 'Seats over steps. Arrow keys scroll, plus and minus zoom, ' +
            'Enter reads the story of the newest request.',
    });
    seats.frameTimes = frameTimes;
    parts = {seats};
    parts.bar = el('div', {class: 'row bar'});
    parts.message = el('div', {class: 'bus-message'});
    parts.waiting = el('ol', {class: 'plain'});
    parts.requests = el('ul', {class: 'plain requests'});
    parts.story = el('div', {class: 'story', 'aria-live': 'polite'});
    parts.map = el('canvas', {role: 'img', 'aria-label': 'Map of the KV blocks'});
    parts.blocks = el('p', {class: 'count'});
    parts.summary = el('p', {class: 'summary', role: 'status'});
    parts.try = el('div', {id: 'try-panel'});
    parts.box = el('div', {class: 'seats-box'}, seats);
    fill(
        byId('bus-view'),
        el('div', {class: 'bus'},
           el('div', {class: 'bus-main'}, el('h1', {class: 'unseen'}, 'The bus'), parts.bar,
              parts.message, parts.summary,
              el('ul', {class: 'legend', 'aria-label': 'Colours'}, legendItem('prefill', 'prompt'),
                 legendItem('decode', 'decoded token'), legendItem('cached', 'cached prefix'),
                 legendItem('swap', 'preempted, swapped'),
                 legendItem('recompute', 'preempted, recomputed'),
                 legendItem('empty', 'empty seat')),
              parts.box, canvasPart('time', 'Step time'), canvasPart('queue', 'Waiting requests'),
              canvasPart('kv', 'KV blocks'), parts.try),
           el('section', {class: 'bus-side', 'aria-label': 'Details'},
              el('section', {}, el('h2', {}, 'Story'), parts.story),
              el('section', {}, el('h2', {}, 'Waiting'), parts.waiting),
              el('section', {}, el('h2', {}, 'KV memory'), parts.map, parts.blocks,
                 el('ul', {class: 'legend'}, legendItem('used', 'used'),
                    legendItem('shared', 'shared'), legendItem('kept', 'cached'),
                    legendItem('free', 'free'))),
              el('section', {}, el('h2', {}, 'Requests'), parts.requests))));
    makeModelField();
    makeBar();
    bindCanvas(seats);
    showStory();
}

/** With several models, one of them is watched. */
function makeModelField() {
    parts.model = el('select', {
        id: 'bus-model',
        onchange: () => {
            watchedModel = parts.model.value;
            watchAbort.abort();
        }
    });
    parts.modelField =
        el('div', {class: 'field inline', hidden: true}, el('label', {'for': 'bus-model'}, 'Model'),
           parts.model);
}

function showModelField() {
    const names = (liveState.models || []).filter((m) => m.writes !== false).map((m) => m.id);
    parts.modelField.hidden = names.length < 2;
    if (parts.model.options.length === names.length) return;
    fill(parts.model, names.map((name) => el('option', {value: name}, name)));
    parts.model.value = liveState.model;
}

function makeBar() {
    parts.pause = button('Pause', () => setPaused(!isPaused), {'aria-pressed': 'false'});
    fill(
        parts.bar, isRecorded ? el('strong', {}, 'Recording') : parts.pause,
        button('◀', () => scrollBy(-0.5), {'aria-label': 'Earlier steps'}),
        button('▶', () => scrollBy(0.5), {'aria-label': 'Later steps'}),
        button('−', () => zoomBy(-1), {'aria-label': 'Zoom out'}),
        button('+', () => zoomBy(1), {'aria-label': 'Zoom in'}),
        isRecorded ? null : parts.modelField, el('span', {class: 'grow'}),
        isRecorded && !parts.isFile ? button('Back to live', leaveRecording) : null,
        isRecorded ? null : button('Save recording', saveRecording),
        button('Open recording', openFile));
}

const viewWidth = () => parts.box.clientWidth;

function setPaused(paused) {
    isPaused = paused;
    if (picture) picture.right = paused ? store.end : null;
    parts.pause.setAttribute('aria-pressed', String(paused));
    parts.pause.textContent = paused ? 'Paused' : 'Pause';
    isDirty = true;
}

function scrollBy(share) {
    if (!picture) return;
    const [from, to] = picture.window(viewWidth());
    const width = Math.max(1, to - from);
    const wanted = Math.round(to + share * width);
    if (wanted >= store.end && !isRecorded) return setPaused(false);
    if (!isPaused) setPaused(true);
    picture.right = Math.max(Math.min(store.base + width, store.end), Math.min(wanted, store.end));
    isDirty = true;
}

function zoomBy(step) {
    if (!picture) return;
    const at = Math.max(0, Math.min(ZOOMS.length - 1, ZOOMS.indexOf(picture.zoom) + step));
    picture.zoom = ZOOMS[at];
    isDirty = true;
}

function bindCanvas(canvas) {
    canvas.addEventListener('click', (event) => {
        const cell = picture && picture.cellAt(event.offsetX, event.offsetY, viewWidth());
        const sequence = cell && store.sequenceAt(cell.column, cell.seat);
        if (sequence) select(sequence);
    });
    canvas.addEventListener('wheel', (event) => {
        event.preventDefault();
        if (event.ctrlKey)
            zoomBy(event.deltaY < 0 ? 1 : -1);
        else
            scrollBy((event.deltaX || event.deltaY) / viewWidth());
    }, {passive: false});
    canvas.addEventListener('keydown', (event) => {
        const keys = {
            ArrowLeft: () => scrollBy(-0.1),
            ArrowRight: () => scrollBy(0.1),
            PageUp: () => scrollBy(-0.9),
            PageDown: () => scrollBy(0.9),
            '+': () => zoomBy(1),
            '-': () => zoomBy(-1),
            ' ': () => setPaused(!isPaused),
            Enter: () => latestSequences(1).forEach(select),
        };
        if (!keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
    });
}

// ---- drawing ----

function drawFrame() {
    requestAnimationFrame(drawFrame);
    if (!picture || byId('bus-view').hidden) return;
    const isMoving = store.version !== shownVersion && !isPaused;
    if (!isMoving && !isDirty) return;
    const began = performance.now();
    shownVersion = store.version;
    isDirty = false;
    const width = viewWidth();
    picture.draw(parts.seats, width);
    const top = picture.drawBars(
        parts.time, width, 56, [['decode', (s) => s.us || 0]], (s) => s.target_us || 0);
    parts.timeScale.textContent = top ? `, scale up to ${stepTimeText(top)}` : '';
    const longest =
        picture.drawBars(parts.queue, width, 40, [['line-c', (s) => s.waiting_count || 0]]);
    parts.queueScale.textContent = longest ? `, up to ${countText(longest)}` : ', none';
    const blocks = (name) => (s) => (s.blocks && s.blocks[name]) || 0;
    picture.drawBars(parts.kv, width, 56, [
        ['used', blocks('used')], ['shared', blocks('shared')], ['kept', blocks('cached')],
        ['free', blocks('free')]
    ]);
    frameTimes.push(performance.now() - began);
    if (frameTimes.length > 2000) frameTimes.shift();
}

// ---- texts ----

const tenantName = (tenant) => (store.state.tenants && store.state.tenants[tenant]) || '';

function requestLabel(sequence) {
    const tenant = tenantName(sequence.tenant);
    return `${sequenceName(sequence)}${tenant ? ` of ${tenant}` : ''}`;
}

/** A list that somebody points at or has the focus in stays as it is. */
function fillUnlessUsed(place, ...children) {
    if (!place.matches(':hover') && !place.contains(document.activeElement))
        fill(place, ...children);
}

function showTexts() {
    if (!store || byId('bus-view').hidden) return;
    const [, to] = picture.window(viewWidth());
    const step = store.step(to - 1);
    if (!step) return;
    const blocks = step.blocks || {};
    const count = step.rows.length / store.stride;
    parts.summary.textContent =
        `Step ${countText(step.step)}: ${plural(count, 'sequence')} in ${stepTimeText(step.us)}` +
        `${step.target_us ? ` (target ${stepTimeText(step.target_us)})` : ''}, ${
            plural(
                step.waiting_count || 0,
                'request')} waiting, policy ${step.policy || store.state.policy || 'unknown'}.`;
    parts.blocks.textContent = blocks.used === undefined ?
        '' :
        `${countText(blocks.used)} used, ${countText(blocks.shared)} shared, ${
            countText(blocks.cached)} cached, ${countText(blocks.free)} free.`;
    const at = store.at.waiting;
    const list = (step.waiting || []).slice(0, 12).map((row) => {
        const sequence = store.find(row[at.request], row[at.choice], row[at.tenant]);
        const since = sequence.arrived === null ?
            '' :
            `, for ${msText((step.at_us - sequence.arrived) / 1000)}`;
        return el(
            'li', {}, button(requestLabel(sequence), () => select(sequence), {class: 'link'}),
            el('span', {class: 'count'}, ` ${REASONS[row[at.why]] || row[at.why]}${since}`));
    });
    const more = (step.waiting_count || 0) - list.length;
    fillUnlessUsed(
        parts.waiting, list.length ? list : el('li', {class: 'count'}, 'Nobody waits.'),
        more > 0 && list.length ? el('li', {class: 'count'}, `and ${countText(more)} more`) : null);
    fillUnlessUsed(
        parts.requests,
        latestSequences(16).map(
            (s) =>
                el('li', {},
                   button(
                       requestLabel(s), () => select(s),
                       {class: 'link', 'aria-pressed': s === picture.selected ? 'true' : null}),
                   el('span', {class: 'count'},
                      s.ended ? ` ended, ${plural(s.ended.generated, 'token')}` :
                          s.segments.length ? ' running' :
                                              ' waiting'))));
    showMap(step);
    if (picture.selected) showStory();
}

const latestSequences = (count) =>
    store ? [...store.sequences.values()].slice(-count).reverse() : [];

/** Reads the story of a sequence. */
export function select(sequence) {
    picture.selected = sequence;
    isDirty = true;
    showStory();
    showTexts();
}

const clockText = (us) => us === null ?
    '' :
    new Date((store.hello.epoch_ms || 0) + us / 1000).toISOString().slice(11, 23);

let shownStory = '';

function showStory() {
    const sequence = picture && picture.selected;
    if (!sequence) {
        fill(
            parts.story,
            el('p', {class: 'help'},
               'Click a cell of the picture, or a request in the lists, ' +
                   'to read what happened to it.'));
        shownStory = '';
        return;
    }
    const id = store.ids.get(sequence.request);
    const story = storyOf(sequence, (s) => requestLabel(s) + (id ? ` (${id})` : ''));
    const text = JSON.stringify(story);
    if (text === shownStory) return;
    shownStory = text;
    fill(
        parts.story,
        el('ol', {class: 'plain'},
           story.map(
               ([us, sentence]) =>
                   el('li', {}, us === null ? null : el('time', {class: 'count'}, clockText(us)),
                      el('span', {}, sentence)))));
}

/**
 * The map of the blocks: where they are, if the view is live and the server tells it; otherwise how
 * many of each kind there were at the step that is shown.
 */
function showMap(step) {
    const isNow = !isPaused && !isRecorded && store.state.blocks && store.state.blocks.map;
    const {used, shared, cached, free} = step.blocks || {};
    const map =
        isNow || (used === undefined ? null : [[2, used], [3, shared], [1, cached], [0, free]]);
    if (map) drawBlockMap(parts.map, parts.map.parentElement.clientWidth, map, picture.colours);
}

// ---- where steps come from ----

/** Shows the steps of `next`. */
export function useStore(next) {
    store = next;
    const zoom = picture && picture.zoom;
    picture = new Picture(store);
    if (zoom) picture.zoom = zoom;
    if (isPaused || isRecorded) picture.right = store.end;
    isDirty = true;
    showStory();
    showTexts();
}

function onEngineEvent({event, data}) {
    const value = JSON.parse(data);
    if (event === 'hello') {
        const isSame = liveStore && liveStore.hello.model === value.model &&
            Math.abs(liveStore.hello.epoch_ms - value.epoch_ms) < SAME_RUN_MS;
        fill(parts.message);
        if (isSame) return;
        liveStore = new StepStore(value, liveState);
        if (!isRecorded) useStore(liveStore);
        fill(
            parts.message,
            el('p', {class: 'help'},
               'Nothing has run yet. Ask something in the chat, or try a small load below.'));
    } else if (event === 'skipped') {
        liveStore.skip(value.from, value.to);
    } else if (event === 'step') {
        if (!liveStore.steps.length) fill(parts.message);
        liveStore.add(value);
    }
}


/** The path, for the model that is watched. */
export const ofModel = (path) => watchedModel ?
    `${path}${path.includes('?') ? '&' : '?'}model=${encodeURIComponent(watchedModel)}` :
    path;

/** The state of the engine; empty where the server does not tell it: then the steps have to do. */
async function readState(options) {
    return await hasPath('/v1/engine/state') ? getJson(ofModel('/v1/engine/state'), options) : {};
}

/** Reads the steps from where the store ends until the stream breaks. */
async function watchOnce() {
    watchAbort = new AbortController();
    takeState(await readState({}));
    const isSameModel = liveStore && (!watchedModel || liveStore.hello.model === watchedModel);
    const last = isSameModel && liveStore.steps.at(-1);
    const from = last ? last.step + 1 : Math.max(0, (liveState.step || 0) - HISTORY_STEPS);
    await stream(
        'GET', ofModel(`/v1/engine/steps?from=${from}`), {signal: watchAbort.signal},
        onEngineEvent);
}

function forbiddenNote() {
    const anotherKey = () => {
        forgetKey();
        location.reload();
    };
    return el(
        'p', {class: 'help'},
        'The bus shows all requests of the server, so it needs an admin key. ',
        hasKey() ? button('Use another key', anotherKey, {id: 'another-key'}) : null);
}

async function watch() {
    for (;;) {
        try {
            await watchOnce();
        } catch (error) {
            if (error.name === 'AbortError') continue; // another model was chosen
            const isFinal = error instanceof ApiError && [401, 403, 404].includes(error.status);
            const isForbidden = error.status === 403;
            fill(
                parts.message, errorNote(error, isFinal && !isForbidden ? watch : null),
                isForbidden ? forbiddenNote() : null);
            if (isFinal) return;
        }
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
}

function takeState(state) {
    liveState = state;
    if (liveStore && (!state.model || liveStore.hello.model === state.model)) {
        liveStore.state = state;
        for (const {request, id} of state.requests || []) liveStore.ids.set(request, id);
    }
    showModelField();
    document.dispatchEvent(new Event('enginestate'));
}

async function pollState() {
    const isSeen = !byId('bus-view').hidden || !byId('load-view').hidden;
    if (!isSeen || isRecorded || !liveStore) return;
    try {
        takeState(await readState({quiet: true}));
    } catch {
        // the stream of steps reports what is wrong
    }
}

export const engineState = () => liveState;

/** What the kept steps say of each tenant. */
export function tenantFigures() {
    const found = new Map();
    for (const s of liveStore ? liveStore.sequences.values() : []) {
        if (!found.has(s.tenant))
            found.set(
                s.tenant,
                {requests: 0, computed: 0, sampled: 0, waiting: 0, firsts: 0, firstUs: 0});
        const t = found.get(s.tenant);
        t.requests++;
        t.computed += s.prompt;
        t.sampled += s.sampled;
        t.waiting += !s.ended && !s.segments.length ? 1 : 0;
        if (s.firstToken !== null && s.arrived !== null) {
            t.firsts++;
            t.firstUs += s.firstToken - s.arrived;
        }
    }
    const names = liveState.tenants || [];
    return [...found].map(
        ([tenant, t]) => ({...t, name: names[tenant] || '', firstMs: t.firstUs / t.firsts / 1000}));
}

export const liveRecording = () => liveStore && liveStore.recording();

// ---- recordings ----

async function saveRecording() {
    if (!liveStore || !liveStore.steps.length) return say('There are no steps to save.');
    try {
        const template = await (await send('GET', '/page/recording.html')).text();
        const name = `jitney-${new Date().toISOString().slice(0, 19).replace(/:/g, '-')}.html`;
        saveFile(name, 'text/html', recordingPage(template, liveStore.recording()));
    } catch (error) {
        say(error.message);
    }
}

async function openFile() {
    const text = await askForFile('.html,.json,text/html,application/json');
    if (text === null) return;
    try {
        const opened = parseRecording(text);
        isRecorded = true;
        useStore(opened);
        makeBar();
        fill(parts.message);
    } catch (error) {
        say(error.message);
    }
}

function leaveRecording() {
    isRecorded = false;
    makeBar();
    setPaused(false);
    if (liveStore) useStore(liveStore);
}

// ---- beginning ----

function startDrawing() {
    new ResizeObserver(() => {
        isDirty = true;
    }).observe(parts.box);
    document.addEventListener('themechange', () => {
        if (picture) picture.readColours();
        isDirty = true;
    });
    requestAnimationFrame(drawFrame);
    setInterval(showTexts, TEXT_MS);
}

/** Called once: the live view. Returns the place for "Try it". */
export function startBusView() {
    makeView();
    startDrawing();
    setInterval(pollState, STATE_MS);
    watch();
    return parts.try;
}

/** Called once: the view of a page that holds a recording. */
export function startRecordedView(recorded) {
    isRecorded = true;
    makeView();
    parts.isFile = true;
    parts.try.hidden = true;
    makeBar();
    useStore(recorded);
    startDrawing();
    showTexts();
}

/** The steps that are shown. */
export const shownStore = () => store;
