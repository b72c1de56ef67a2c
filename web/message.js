// message.js - one message of a conversation as elements.
import {
    bytesText,
    button,
    copyText,
    countText,
    el,
    fill,
    msText,
    numberText,
    plural
} from './dom.js';
import {showMarkdown, visibleText} from './markdown.js';
import {siblingsOf} from './conversation.js';

const FINISHES = {
    stop: '',
    length: 'It ended at its limit of tokens.',
    tool_calls: 'It ended with a tool call.',
};

const LEAST_PACE_MS = 20; // of the times between first and last token

/** False where tokens came in a heap: after a reload, or to a page that was busy itself. */
function hasPace(node) { return !node.isResumed && node.last - node.first >= LEAST_PACE_MS; }

/** Sentences and figures below an answer. */
function answerFacts(node) {
    const facts = [];
    const usage = node.usage;
    if (node.model) facts.push(node.model);
    if (usage) {
        const cached = usage.prompt_tokens_details ? usage.prompt_tokens_details.cached_tokens : 0;
        facts.push(`read ${plural(usage.prompt_tokens, 'token')}${
            cached ? ` (${countText(cached)} cached)` : ''}`);
        facts.push(`wrote ${plural(usage.completion_tokens, 'token')}`);
    }
    if (node.first) facts.push(`first token after ${msText(node.first - node.began)}`);
    if (usage && hasPace(node))
        facts.push(`${
            numberText(
                (usage.completion_tokens - 1) / ((node.last - node.first) / 1000))} tokens/s`);
    return facts.join(' · ');
}

function answerNote(node) {
    if (node.state === 'failed')
        return el('p', {class: 'error', role: 'alert'}, node.error || 'The answer failed.');
    if (node.state === 'stopped') return el('p', {class: 'note'}, 'You stopped this answer.');
    const why = FINISHES[node.finish];
    return why ? el('p', {class: 'note'}, why) : null;
}

function branchButtons(chat, node, actions) {
    const siblings = siblingsOf(chat, node);
    if (siblings.length < 2) return null;
    const at = siblings.findIndex((other) => other.id === node.id);
    const go = (to, label, sign) => button(
        sign, () => actions.branch(siblings[to]),
        {'aria-label': label, disabled: to < 0 || to >= siblings.length});
    return el(
        'span', {class: 'branches'}, go(at - 1, 'Earlier version', '‹'),
        el('span', {class: 'count'}, `${at + 1} of ${siblings.length}`),
        go(at + 1, 'Later version', '›'));
}

function fileNode(file) {
    const count =
        file.tokens === undefined ? bytesText(file.text.length) : plural(file.tokens, 'token');
    return el(
        'details', {class: 'file'},
        el('summary', {}, visibleText(file.name), el('span', {class: 'count'}, ` ${count}`)),
        el('pre', {tabindex: '0'}, visibleText(file.text)));
}

/**
 * The element of a message, with update(). `actions`: branch, edit, regenerate, probabilities, each
 * called with the message.
 */
export function messageElement(chat, node, actions) {
    const isUser = node.role === 'user';
    const body = el('div', {class: 'body'});
    const facts = el('p', {class: 'facts'});
    const note = el('div', {class: 'notes'});
    const bar = el('div', {class: 'actions'});
    const element = el(
        'article', {
            class: `message ${node.role}`,
            'aria-label': isUser ? 'Your message' : 'Answer',
            'data-id': node.id,
        },
        el('h3', {}, isUser ? 'You' : 'Answer'), node.files.map(fileNode), body, note, facts, bar);

    const showActions = () => fill(
        bar, branchButtons(chat, node, actions), button('Copy', () => copyText(node.text)),
        isUser ? button('Edit', () => actions.edit(node)) :
                 button('Regenerate', () => actions.regenerate(node)),
        isUser || !node.text ? null : button('Probabilities', () => actions.probabilities(node)));

    element.update = () => {
        if (isUser)
            body.textContent = visibleText(node.text);
        else
            showMarkdown(body, node.text);
        const isRunning = node.state === 'running';
        element.classList.toggle('running', isRunning);
        element.setAttribute('aria-busy', String(isRunning));
        if (isRunning) {
            fill(
                note,
                node.text ? null : el('p', {class: 'note waiting'}, 'Waiting for the first token'));
            facts.textContent = '';
            fill(bar);
            return;
        }
        fill(note, isUser ? null : answerNote(node));
        facts.textContent = isUser ? '' : answerFacts(node);
        showActions();
    };
    element.body = body;
    element.update();
    return element;
}

// ---- probabilities ----

const shareText = (logprob) => {
    const share = Math.exp(logprob) * 100;
    return share >= 99.95 ? '100 %' : share < 0.1 ? '< 0.1 %' : `${share.toFixed(1)} %`;
};
const tokenText = (token) =>
    visibleText(token).replace(/\n/g, '↵').replace(/ /g, '␣') || '(nothing)';

function alternativesTable(token) {
    const list = token.top_logprobs.some((t) => t.token === token.token) ?
        token.top_logprobs :
        [...token.top_logprobs, token];
    return el(
        'table', {}, el('caption', {}, 'Which token could have been here'),
        el('tbody', {},
           list.map(
               (t) =>
                   el('tr', {class: t.token === token.token ? 'chosen' : null},
                      el('th', {scope: 'row'}, tokenText(t.token)),
                      el('td', {}, shareText(t.logprob)), el('td', {}, el('meter', {
                                                                 min: '0',
                                                                 max: '1',
                                                                 value: String(Math.exp(t.logprob)),
                                                                 'aria-label': 'share'
                                                             }))))));
}

/** The answer as tokens; pointing at one, or the arrow keys, show its alternatives. */
export function probabilitiesElement(tokens, onClose) {
    const tip =
        el('div', {class: 'token-tip', role: 'status'},
           el('p', {class: 'help'},
              'Point at a word, or use the arrow keys, to see what else could have been there.'));
    let current = -1;
    const show = (i) => {
        if (i < 0 || i >= tokens.length) return;
        if (current >= 0) spans[current].classList.remove('current');
        current = i;
        spans[i].classList.add('current');
        fill(tip, alternativesTable(tokens[i]));
    };
    const spans = tokens.map((token, i) => {
        const share = Math.exp(token.logprob);
        const level = share > 0.9 ? 0 : share > 0.5 ? 1 : share > 0.2 ? 2 : share > 0.05 ? 3 : 4;
        return el(
            'span',
            {class: `token level${level}`, onmouseenter: () => show(i), onclick: () => show(i)},
            visibleText(token.token));
    });
    const text = el(
        'div',
        {class: 'tokens', tabindex: '0', role: 'group', 'aria-label': 'The answer, token by token'},
        spans);
    text.addEventListener('keydown', (event) => {
        const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
        if (!step) return;
        event.preventDefault();
        show(Math.max(0, Math.min(tokens.length - 1, current + step)));
    });
    return el('div', {class: 'probabilities'}, text, tip, button('Back to the text', onClose));
}
