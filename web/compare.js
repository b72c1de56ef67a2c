// compare.js - two policies side by side, on the requests of one recording.
import {countText, el, fill, msText, numberText, plural} from './dom.js';
import {Picture} from './picture.js';
import {StepStore} from './record.js';

/** What the server reads of a recording: when requests arrived and how they ended. */
export function arrivalsOf(recording) {
    const {arrived, ended} = recording.hello;
    const steps =
        recording.steps.filter((s) => s.arrived || s.ended)
            .map(({arrived: a, ended: e}) => ({...(a && {arrived: a}), ...(e && {ended: e})}));
    return {jitney_recording: 1, hello: {arrived, ended}, state: {}, steps};
}

const percentText = (share) => `${numberText(share * 100)} %`;
const secondsText = (s) => msText(s * 1000);

// [title, path, text of a value, 1: more is better, -1: less is better, 0: neither]
const COMPARED = [
    ['Output tokens per second', 'output_tokens_per_s', numberText, 1],
    ['Time to first token, median', 'ttft_ms.p50', msText, -1],
    ['Time to first token, 99 of 100', 'ttft_ms.p99', msText, -1],
    ['Time per output token, median', 'tpot_ms.p50', msText, -1],
    ['Time per output token, 99 of 100', 'tpot_ms.p99', msText, -1],
    ['Until the last answer ended', 'elapsed_s', secondsText, -1],
    ['Preemptions', 'preemptions', countText, -1],
    ['KV positions held and not used', 'kv_waste', percentText, -1],
    ['Prompt tokens from the prefix cache', 'cached_tokens', countText, 1],
    ['Steps', 'steps', countText, 0],
    ['Requests', 'requests', countText, 0],
    ['Output tokens', 'output_tokens', countText, 0],
];

const figureAt = (figures, path) => path.split('.').reduce((v, name) => v && v[name], figures);

/** "12 % less, better", seen from the first policy to the second; of less than 1 % no verdict. */
function differenceOf(a, b, sense) {
    if (typeof a !== 'number' || typeof b !== 'number') return ['', ''];
    if (a === b) return ['the same', ''];
    const share = Math.abs(b - a) / Math.abs(a);
    const rounded = (n) => numberText(Number(n.toFixed(1)));
    const percent = `${rounded(share * 100)} % ${b > a ? 'more' : 'less'}`;
    const words = !a ? 'more' : share >= 1 ? `${rounded(b / a)} times as much` : percent;
    if (!sense || share < 0.01) return [share < 0.0005 ? 'about the same' : words, ''];
    const verdict = (b - a) * sense > 0 ? 'better' : 'worse';
    return [`${words}, ${verdict}`, verdict];
}

function comparedRow([title, path, text, sense], [one, other]) {
    const a = figureAt(one.figures, path), b = figureAt(other.figures, path);
    const [difference, verdict] = differenceOf(a, b, sense);
    const shown = (v) => typeof v === 'number' ? text(v) : 'none';
    return el(
        'tr', {'data-figure': path}, el('th', {scope: 'row'}, title),
        el('td', {'data-value': a}, shown(a)), el('td', {'data-value': b}, shown(b)),
        el('td', {class: verdict || null}, difference));
}

function comparedTable(results) {
    const [one, other] = results;
    return el(
        'div',
        {class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Figures of both policies'},
        el('table', {},
           el('thead', {},
              el('tr', {}, el('th', {scope: 'col'}, 'Figure'),
                 results.map((r) => el('th', {scope: 'col'}, r.policy)),
                 el('th', {scope: 'col'}, `${other.policy} beside ${one.policy}`))),
           el('tbody', {}, COMPARED.map((figure) => comparedRow(figure, results)))));
}

/** Times are shown from the first step on. */
const storeOf = (result, hello) => {
    const first = result.steps.length ? result.steps[0].at_us : 0;
    const store = new StepStore({...hello, epoch_ms: -first / 1000}, {});
    for (const step of result.steps) store.add(step);
    return store;
};

let onTheme = null; // of the comparison that is shown

/** Shows the answer of POST /v1/engine/whatif for two policies. */
export function showComparison(place, {results, profile}, hello) {
    const pictures = results.map((r) => new Picture(storeOf(r, hello)));
    const boxes = results.map(
        (r) =>
            el('div', {class: 'seats-box'}, el('canvas', {
                   role: 'img',
                   'aria-label':
                       `Seats over ${plural(r.figures.steps, 'step')} with the policy ${r.policy}`
               })));
    fill(
        place,
        el('p', {class: 'help'},
           `${plural(results[0].figures.requests, 'request')} of the last minute, simulated with ` +
               `both policies and what a step costs here: ${msText(profile.fixed_us / 1000)} and ${
                   msText(
                       profile.per_token_us /
                       1000)} for each token. Prompts are random, so they share no prefix.`),
        comparedTable(results),
        el('div', {class: 'compare'},
           results.map((r, i) => el('div', {}, el('h3', {}, r.policy), boxes[i]))));
    const draw = () => {
        const longest = Math.max(...pictures.map((p) => p.store.steps.length));
        pictures.forEach((p, i) => {
            p.zoom = p.zoomFor(boxes[0].clientWidth, longest); // one scale for all
            p.draw(boxes[i].firstChild, boxes[i].clientWidth);
        });
    };
    new ResizeObserver(draw).observe(boxes[0]);
    document.removeEventListener('themechange', onTheme);
    onTheme = () => {
        for (const picture of pictures) picture.readColours();
        draw();
    };
    document.addEventListener('themechange', onTheme);
}
