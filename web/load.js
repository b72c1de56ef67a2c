// load.js - the view at #load: the server's numbers over time.
//
// Everything is computed from /metrics, which is read every two seconds, and from the state of the
// engine; tenants are counted from the steps.
import {errorNote, getJson, hasPath, postJson, send} from './api.js';
import {engineState, ofModel, tenantFigures} from './bus.js';
import {chartElement} from './chart.js';
import {button, byId, bytesText, countText, el, fill, msText, numberText, say} from './dom.js';
import {bucketsOf, isErrorStatus, parseMetrics, percentileOf, sumOf} from './metrics.js';

const READ_MS = 2000;
const KEPT = 450; // readings: 15 minutes
const SPAN = 5; // readings over which percentiles are taken

let readings = []; // {time, metrics}
let loadModel = '';
let panels = null; // once the view is made

const CHARTS = [
    {
        title: 'Throughput',
        unit: 'tokens/s',
        names: ['prompt', 'generated'],
        lines: [rateOf('vllm:prompt_tokens_total'), rateOf('vllm:generation_tokens_total')]
    },
    {
        title: 'Time to first token',
        names: ['p50', 'p95', 'p99'],
        isTime: true,
        lines: percentiles('vllm:time_to_first_token_seconds')
    },
    {
        title: 'Time per output token',
        names: ['p50', 'p95', 'p99'],
        isTime: true,
        lines: percentiles('vllm:request_time_per_output_token_seconds')
    },
    {
        title: 'Sequences',
        names: ['running', 'waiting'],
        lines: [gaugeOf('vllm:num_requests_running'), gaugeOf('vllm:num_requests_waiting')]
    },
    {
        title: 'KV memory in use',
        unit: '%',
        names: ['used'],
        lines: [(i) => gaugeOf('vllm:kv_cache_usage_perc')(i) * 100]
    },
    {
        title: 'Prompt tokens found in the prefix cache',
        unit: '%',
        names: ['hits'],
        lines:
            [(i) => rateOf('vllm:prefix_cache_hits_total')(i) /
                 rateOf('vllm:prefix_cache_queries_total')(i) * 100]
    },
    {
        title: 'Preemptions',
        unit: 'per s',
        names: ['preempted'],
        lines: [rateOf('vllm:num_preemptions_total')]
    },
    {
        title: 'HTTP requests',
        unit: 'per s',
        names: ['answered', 'errors'],
        lines: [
            rateOf('jitney:http_requests_total', null, true),
            rateOf('jitney:http_requests_total', isErrorStatus, true)
        ]
    },
];

// ---- values of reading i ----

function gaugeOf(name) { return (i) => sumOf(readings[i].metrics, name, loadModel); }

function rateOf(name, filter = null, isServer = false) {
    return (i) => {
        if (i === 0) return NaN;
        const model = isServer ? '' : loadModel;
        const seconds = (readings[i].time - readings[i - 1].time) / 1000;
        return (sumOf(readings[i].metrics, name, model, filter) -
                sumOf(readings[i - 1].metrics, name, model, filter)) /
            seconds;
    };
}

function percentiles(name) {
    return [0.5, 0.95, 0.99].map((share) => (i) => {
        if (i === 0) return NaN;
        const before = readings[Math.max(0, i - SPAN)].metrics;
        return percentileOf(
                   bucketsOf(readings[i].metrics, name, loadModel),
                   bucketsOf(before, name, loadModel), share) *
            1000;
    });
}

// ---- the view ----

const TOTALS = [
    ['Requests accepted', 'jitney:requests_submitted_total'],
    ['Prompt tokens', 'vllm:prompt_tokens_total'],
    ['Generated tokens', 'vllm:generation_tokens_total'],
    ['Engine steps', 'jitney:engine_steps_total'],
    ['Preemptions', 'vllm:num_preemptions_total'],
    ['Recomputed tokens', 'jitney:recomputed_tokens_total'],
    ['Prefix tokens looked up', 'vllm:prefix_cache_queries_total'],
    ['Prefix tokens found', 'vllm:prefix_cache_hits_total'],
    ['KV blocks in use', 'jitney:kv_blocks_held'],
    ['KV blocks cached', 'jitney:kv_blocks_cached'],
    ['KV blocks free', 'jitney:kv_blocks_free'],
];

const tableOf = (caption, head, rows) =>
    el('div', {class: 'table', tabindex: '0', role: 'region', 'aria-label': caption},
       el('table', {}, el('thead', {}, el('tr', {}, head.map((h) => el('th', {scope: 'col'}, h)))),
          el('tbody', {},
             rows.map(
                 (row) => el(
                     'tr', {},
                     row.map((cell, i) => el(i ? 'td' : 'th', i ? {} : {scope: 'row'}, cell)))))));

function makeLoadView() {
    panels = {
        message: el('div'),
        model: el('select', {
            id: 'load-model',
            onchange: (event) => {
                loadModel = event.target.value;
                showLoad();
            }
        }),
        charts: CHARTS.map((c) => chartElement(c.title, c.names, c.unit)),
        totals: el('div', {id: 'totals'}),
        percentiles: el('div'),
        tenants: el('div'),
        server: el('div'),
        knobs: el('div'),
        starts: el('div'),
    };
    fill(
        byId('load-view'),
        el('div', {class: 'load'}, el('h1', {}, 'Numbers'), panels.message,
           el('div', {class: 'row bar'},
              el('div', {class: 'field inline'}, el('label', {'for': 'load-model'}, 'Model'),
                 panels.model),
              panels.server),
           el('div', {class: 'charts'}, panels.charts),
           el('div', {class: 'columns'},
              el('section', {}, el('h2', {}, 'Since the start'), panels.totals),
              el('section', {}, el('h2', {}, 'Latency since the start'), panels.percentiles),
              el('section', {}, el('h2', {}, 'Tenants in the kept steps'), panels.tenants),
              panels.startsBox =
                  el('section', {hidden: true}, el('h2', {}, 'What is loaded'), panels.starts)),
           panels.knobsBox = el(
               'section', {hidden: true}, el('h2', {}, 'Knobs of the scheduler'), panels.knobs)));
}

function showLoad() {
    if (!panels || !readings.length) return;
    const now = readings.at(-1).metrics;
    const times = readings.map((r) => r.time);
    byId('load-view').dataset.times = times.slice(-2).join(' ');
    CHARTS.forEach(
        (chart, c) => panels.charts[c].update(
            times, chart.lines.map((line) => readings.map((_, i) => line(i))),
            chart.isTime ? msText : numberText));
    fill(
        panels.totals,
        tableOf(
            'Totals', ['Figure', 'Value'],
            TOTALS.map(
                ([label, name]) =>
                    [label,
                     el('span', {'data-metric': name}, countText(sumOf(now, name, loadModel)))])));
    const latency = [
        ['Time to first token', 'vllm:time_to_first_token_seconds'],
        ['Time per output token', 'vllm:request_time_per_output_token_seconds'],
        ['Time in the queue', 'vllm:request_queue_time_seconds'],
        ['Whole request', 'vllm:e2e_request_latency_seconds']
    ];
    fill(
        panels.percentiles,
        tableOf(
            'Latency', ['Figure', 'p50', 'p95', 'p99'],
            latency.map(([label, name]) => [label, ...[0.5, 0.95, 0.99].map((share) => {
                            const ms =
                                percentileOf(bucketsOf(now, name, loadModel), [], share) * 1000;
                            return el('span', {'data-latency': name, 'data-value': ms}, msText(ms));
                        })])));
    const tenants = tenantFigures();
    fill(
        panels.tenants,
        tenants.length ?
            tableOf(
                'Tenants',
                [
                    'Tenant', 'Requests', 'Prompt tokens', 'Generated', 'Waiting',
                    'First token, mean'
                ],
                tenants.map(
                    (t) =>
                        [t.name || '(no name)',
                         ...[t.requests, t.computed, t.sampled, t.waiting].map(
                             (n) => el('span', {'data-tenant': t.name}, countText(n))),
                         msText(t.firstMs)])) :
            el('p', {class: 'help'}, 'No request has run since this page was opened.'));
    showServer(now);
}

function showServer(now) {
    const info = (now.get('jitney:build_info') || [])[0];
    const since = Date.now() / 1000 - sumOf(now, 'process_start_time_seconds');
    fill(
        panels.server,
        el('span', {class: 'count'},
           `Version ${info ? info.labels.version : 'unknown'} · running for ${
               msText(since * 1000)} · ` +
               `${bytesText(sumOf(now, 'process_resident_memory_bytes'))} resident · ` +
               `${countText(sumOf(now, 'jitney:http_connections'))} connections`));
}

function showModelsOf(models) {
    const names = models.map((m) => m.id);
    if (panels.model.options.length !== names.length + 1)
        fill(
            panels.model, el('option', {value: ''}, 'All models'),
            names.map((n) => el('option', {value: n}, n)));
}

// ---- knobs and start times, from the state of the engine ----

function knobInput(knob, canSet) {
    if (!knob.live || !canSet) return String(knob.value);
    const input = el('input', {value: String(knob.value), 'aria-label': knob.name, class: 'knob'});
    const apply = async () => {
        const value = input.value.trim() !== '' && Number.isFinite(Number(input.value)) ?
            Number(input.value) :
            input.value;
        try {
            await postJson(ofModel('/v1/engine/policy'), {knobs: {[knob.name]: value}});
            say(`${knob.name} is now ${input.value}.`);
        } catch (error) {
            say(error.message);
        }
    };
    return el(
        'span', {class: 'row'}, input, button('Set', apply, {'aria-label': `Set ${knob.name}`}));
}

let shownKnobs = '';

async function showEngineState() {
    if (!panels) return;
    const state = engineState();
    const canSet = await hasPath('/v1/engine/policy');
    const text = JSON.stringify([state.knobs, state.models, state.policy]);
    if (!state.knobs || text === shownKnobs) return;
    shownKnobs = text;
    panels.knobsBox.hidden = panels.startsBox.hidden = false;
    fill(
        panels.knobs,
        tableOf(
            'Knobs', ['Knob', 'Value', 'What it does'],
            state.knobs.map(
                (k) =>
                    [k.name, knobInput(k, canSet),
                     k.policy ? `${k.policy}: ${k.summary}` : k.summary])));
    fill(
        panels.starts,
        tableOf(
            'Start', ['Model', 'State', 'Start'],
            (state.models || [])
                .map(
                    (m) =>
                        [m.id, m.state,
                         Object.entries(m.start_ms || {})
                                 .map(([part, ms]) => `${part} ${msText(ms)}`)
                                 .join(', ') ||
                             '–'])));
}

function showReading() {
    if (!panels || byId('load-view').hidden) return;
    fill(panels.message);
    showLoad();
    showEngineState();
}

async function readMetrics() {
    if (document.hidden && readings.length) return;
    try {
        const text = await (await send('GET', '/metrics', {quiet: readings.length > 0})).text();
        readings.push({time: Date.now(), metrics: parseMetrics(text)});
        if (readings.length > KEPT) readings.shift();
        showReading();
    } catch (error) {
        if (panels) fill(panels.message, errorNote(error));
    }
}

let reader = null;

/** From now on, so that the charts have a past when their view is opened. */
export function startReading() {
    if (reader) return;
    reader = setInterval(readMetrics, READ_MS);
    readMetrics();
}

/** Called once, when the view is opened first. */
export async function startLoadView() {
    makeLoadView();
    startReading();
    showReading();
    document.addEventListener('themechange', showLoad);
    document.addEventListener('enginestate', showEngineState);
    new ResizeObserver(showLoad).observe(byId('load-view'));
    try {
        showModelsOf((await getJson('/v1/models', {quiet: true})).data);
    } catch (error) {
        fill(panels.message, errorNote(error));
    }
}
