// markdown.js - shows the Markdown that a model has written, as elements with text.
//
// What a model writes is never trusted: HTML in it is text, images are named and not loaded, a
// link is an anchor only if it is http or https, and then it shows where it leads. Control
// characters and those that turn the direction of text are made visible. Every loop is bounded
// by the length of the text, every nesting by a constant.
import {el, button, copyText} from './dom.js';

const NESTING_MAX = 6;
const TURNING = /[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** The text with control characters and direction marks spelt out. */
export function visibleText(text) {
    return text
        .replace(CONTROL, (c) => c < ' ' ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : '\u2421')
        .replace(
            TURNING,
            (c) => `\u27e8U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e9`);
}

// ---- inside a line ----

const isSpace = (c) => c === undefined || /\s/.test(c);
const isWord = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);

/** Where `mark` closes what it opened before `from`; -1: nowhere. */
function findCloser(text, from, mark, none) {
    if (none.has(mark)) return -1;
    const c = mark[0];
    for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
        if (at === from || isSpace(text[at - 1])) continue;
        if (mark.length === 1 && (text[at - 1] === c || text[at + 1] === c)) continue;
        if (c === '_' && isWord(text[at + mark.length])) continue;
        return at;
    }
    none.add(mark); // nor does it close anything that begins later
    return -1;
}

/** The address if it is one that a person may open: http or https. */
function safeAddress(text) {
    if (!/^https?:\/\//i.test(text) || /[\s\u0000-\u001f]/.test(text)) return null;
    try {
        const url = new URL(text);
        return /^https?:$/.test(url.protocol) && !url.username ? url : null;
    } catch {
        return null;
    }
}

function linkNode(children, address) {
    const url = safeAddress(address);
    if (!url) return [...children, visibleText(` (${address})`)];
    const link =
        el('a', {
            href: url.href,
            rel: 'noopener noreferrer nofollow',
            target: '_blank',
            title: url.href,
        },
           children);
    if (link.textContent.includes(url.host)) return [link];
    return [link, el('span', {class: 'host'}, ` (${url.host})`)];
}

/** Where the parenthesis that was opened before `from` closes; an address may have more pairs. */
function closingParenthesis(text, from, end) {
    let depth = 1;
    for (let i = from; i < end; i++) {
        if (text[i] === '(')
            depth++;
        else if (text[i] === ')' && --depth === 0)
            return i;
        else if (text[i] === '\n')
            break;
    }
    return text.indexOf(')', from);
}

/** "[label](address)" at `at`, as {label, address, end}; null: it is none. */
function readLink(text, at) {
    let depth = 0;
    const end = Math.min(text.length, at + 2000);
    for (let i = at; i < end; i++) {
        if (text[i] === '\\')
            i++;
        else if (text[i] === '[')
            depth++;
        else if (text[i] === ']' && --depth === 0) {
            if (text[i + 1] !== '(') return null;
            const close = closingParenthesis(text, i + 2, end);
            if (close < 0) return null;
            const address = text.slice(i + 2, close).trim().split(/\s/)[0] || '';
            return {label: text.slice(at + 1, i), address, end: close + 1};
        }
    }
    return null;
}

const EMPHASIS = [['**', 'strong'], ['__', 'strong'], ['~~', 's'], ['*', 'em'], ['_', 'em']];

function readEmphasis(text, at, none) {
    for (const [mark, tag] of EMPHASIS) {
        if (!text.startsWith(mark, at)) continue;
        const from = at + mark.length;
        if (isSpace(text[from]) || (mark[0] === '_' && isWord(text[at - 1]))) return null;
        if (mark.length === 1 && text[from] === mark) return null;
        const close = findCloser(text, from, mark, none);
        if (close >= 0) return {tag, inner: text.slice(from, close), end: close + mark.length};
        if (mark.length === 2) continue;
        return null;
    }
    return null;
}

function readCode(text, at, none) {
    const mark = /^`+/.exec(text.slice(at, at + 64))[0];
    if (none.has(mark)) return {mark};
    let close = text.indexOf(mark, at + mark.length);
    while (close >= 0 && text[close + mark.length] === '`') {
        let after = close;
        while (text[after] === '`') after++;
        close = text.indexOf(mark, after);
    }
    if (close < 0) none.add(mark);
    return {
        mark,
        inner: close < 0 ? null : text.slice(at + mark.length, close),
        end: close + mark.length
    };
}

/** The nodes of a text without blocks. */
function inlineNodes(text, depth) {
    const nodes = [];
    const none = new Set();
    let plain = '';
    const flush = () => {
        if (plain) nodes.push(visibleText(plain));
        plain = '';
    };
    const add = (...list) => {
        flush();
        nodes.push(...list);
    };
    const nested = (inner) =>
        depth < NESTING_MAX ? inlineNodes(inner, depth + 1) : [visibleText(inner)];
    for (let i = 0; i < text.length;) {
        const c = text[i];
        if (c === '\\' && /[!-/:-@[-`{-~]/.test(text[i + 1] || '')) {
            plain += text[i + 1];
            i += 2;
            continue;
        }
        if (c === '\n') {
            add(el('br'));
            i++;
            continue;
        }
        if (c === '`') {
            const code = readCode(text, i, none);
            if (typeof code.inner === 'string')
                add(el('code', {}, visibleText(code.inner.trim() || code.inner)));
            else
                plain += code.mark;
            i = typeof code.inner === 'string' ? code.end : i + code.mark.length;
            continue;
        }
        if (c === '!' && text[i + 1] === '[') {
            const image = readLink(text, i + 1);
            if (image) {
                add(el(
                    'span', {class: 'unloaded'},
                    visibleText(`[image: ${image.label || 'without a name'}, ${image.address}]`)));
                i = image.end;
                continue;
            }
        }
        if (c === '[') {
            const link = readLink(text, i);
            if (link) {
                add(...linkNode(nested(link.label), link.address));
                i = link.end;
                continue;
            }
        }
        if ((c === 'h' || c === 'H') && !isWord(text[i - 1])) {
            const match = /^https?:\/\/[^\s<>"'`|\\^{}]+/i.exec(text.slice(i, i + 2000));
            const address = match && match[0].replace(/[.,;:!?)\]*_]+$/, '');
            if (address && safeAddress(address)) {
                add(...linkNode([visibleText(address)], address));
                i += address.length;
                continue;
            }
        }
        if (c === '*' || c === '_' || c === '~') {
            const mark = readEmphasis(text, i, none);
            if (mark) {
                add(el(mark.tag, {}, nested(mark.inner)));
                i = mark.end;
                continue;
            }
        }
        plain += c;
        i++;
    }
    flush();
    return nodes;
}

// ---- blocks ----

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DELIMITERS = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const cellsOf = (line) => line.trim()
                              .replace(/^\|/, '')
                              .replace(/\|$/, '')
                              .split(/(?<!\\)\|/)
                              .map((cell) => cell.trim().replace(/\\\|/g, '|'));

const isTable = (lines, at) => lines[at].includes('|') && at + 1 < lines.length &&
    lines[at + 1].includes('-') && DELIMITERS.test(lines[at + 1]) &&
    cellsOf(lines[at]).length === cellsOf(lines[at + 1]).length;

const beginsBlock = (lines, at) => FENCE.test(lines[at]) || HEADING.test(lines[at]) ||
    RULE.test(lines[at]) || ITEM.test(lines[at]) || QUOTE.test(lines[at]) || isTable(lines, at);

/** The block that begins at line `at`: {kind, ..., end}. */
function readBlock(lines, at) {
    const line = lines[at];
    let match;
    if ((match = FENCE.exec(line))) {
        let end = at + 1;
        const close = new RegExp(`^ {0,3}${match[1][0]}{${match[1].length},}\\s*$`);
        while (end < lines.length && !close.test(lines[end])) end++;
        return {
            kind: 'code',
            language: match[2],
            lines: lines.slice(at + 1, end),
            end: Math.min(end + 1, lines.length)
        };
    }
    if ((match = HEADING.exec(line)))
        return {kind: 'heading', level: match[1].length, text: match[2], end: at + 1};
    if (RULE.test(line)) return {kind: 'rule', end: at + 1};
    if (isTable(lines, at)) {
        let end = at + 2;
        while (end < lines.length && lines[end].includes('|')) end++;
        return {kind: 'table', lines: lines.slice(at, end), end};
    }
    if (QUOTE.test(line)) {
        let end = at;
        while (end < lines.length && QUOTE.test(lines[end])) end++;
        return {kind: 'quote', lines: lines.slice(at, end).map((l) => QUOTE.exec(l)[1]), end};
    }
    if (ITEM.test(line)) return readList(lines, at);
    let end = at + 1;
    while (end < lines.length && lines[end].trim() && !beginsBlock(lines, end)) end++;
    return {kind: 'paragraph', text: lines.slice(at, end).map((l) => l.trim()).join('\n'), end};
}

function readList(lines, at) {
    const [, indent, mark] = ITEM.exec(lines[at]);
    const isOrdered = /\d/.test(mark);
    const items = [];
    let end = at;
    while (end < lines.length) {
        const match = ITEM.exec(lines[end]);
        const line = lines[end];
        const depth = line.length - line.trimStart().length;
        if (match && match[1].length <= indent.length + 1 && /\d/.test(match[2]) === isOrdered) {
            items.push([match[3] || '']);
        } else if (!line.trim()) {
            const next = lines[end + 1];
            if (next === undefined || !next.trim()) break;
            const goesOn = next.startsWith(`${indent}  `) ||
                (ITEM.test(next) && /\d/.test(ITEM.exec(next)[2]) === isOrdered);
            if (!goesOn) break;
            items.at(-1).push('');
        } else if (depth > indent.length) {
            items.at(-1).push(line.slice(Math.min(depth, indent.length + (isOrdered ? 3 : 2))));
        } else if (match || beginsBlock(lines, end)) {
            break;
        } else {
            items.at(-1).push(line.trim());
        }
        end++;
    }
    return {kind: 'list', isOrdered, start: isOrdered ? parseInt(mark, 10) : 1, items, end};
}

function codeNode(block) {
    const text = block.lines.join('\n');
    return el(
        'div', {class: 'code'},
        el('div', {class: 'code-head'}, el('span', {}, visibleText(block.language || 'text')),
           button('Copy', () => copyText(text), {'aria-label': 'Copy this code'})),
        el('pre', {tabindex: '0', 'aria-label': 'Code'}, el('code', {}, visibleText(text))));
}

function tableNode(block, depth) {
    const [head, , ...rows] = block.lines.map(cellsOf);
    const cells = (tag, row) => head.map(
        (_, i) =>
            el(tag, tag === 'th' ? {scope: 'col'} : {}, inlineNodes(row[i] || '', depth + 1)));
    return el(
        'div', {class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table'},
        el('table', {}, el('thead', {}, el('tr', {}, cells('th', head))),
           el('tbody', {}, rows.map((row) => el('tr', {}, cells('td', row))))));
}

function blockNode(block, depth) {
    const inner = (lines) => depth < NESTING_MAX ?
        blockNodes(lines, depth + 1) :
        [el('p', {}, inlineNodes(lines.join('\n'), NESTING_MAX))];
    switch (block.kind) {
        case 'code':
            return codeNode(block);
        case 'heading':
            return el(
                'p', {
                    class: `h h${block.level}`,
                    role: 'heading',
                    'aria-level': String(Math.min(6, block.level + 2))
                },
                inlineNodes(block.text, 0));
        case 'rule':
            return el('hr');
        case 'table':
            return tableNode(block, depth);
        case 'quote':
            return el('blockquote', {}, inner(block.lines));
        case 'list':
            return el(
                block.isOrdered ? 'ol' : 'ul', block.start > 1 ? {start: String(block.start)} : {},
                block.items.map(
                    (item) =>
                        el('li', {}, item.length === 1 ? inlineNodes(item[0], 0) : inner(item))));
        default:
            return el('p', {}, inlineNodes(block.text, 0));
    }
}

/** Top-level blocks as [source, block]. */
function splitBlocks(lines) {
    const blocks = [];
    for (let at = 0; at < lines.length;) {
        if (!lines[at].trim()) {
            at++;
            continue;
        }
        const block = readBlock(lines, at);
        blocks.push([lines.slice(at, block.end).join('\n'), block]);
        at = block.end;
    }
    return blocks;
}

const blockNodes = (lines, depth) => splitBlocks(lines).map(([, block]) => blockNode(block, depth));

const shownSources = new WeakMap(); // of an element: the sources of the blocks that it shows

/** Shows `text` in `place`. While an answer grows, only its last blocks are made again. */
export function showMarkdown(place, text) {
    const blocks = splitBlocks(text.replace(/\r\n?/g, '\n').split('\n'));
    const before = shownSources.get(place) || [];
    let same = 0;
    while (same < blocks.length && same < before.length && blocks[same][0] === before[same]) same++;
    while (place.childNodes.length > same) place.lastChild.remove();
    for (const [, block] of blocks.slice(same)) {
        const node = blockNode(block, 0);
        node.setAttribute('dir', 'auto');
        place.append(node);
    }
    shownSources.set(place, blocks.map(([source]) => source));
}
