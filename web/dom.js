// dom.js - building elements, and writing numbers for people.
//
// Text reaches the page as text nodes only; no module assigns markup. The policy of the page
// (require-trusted-types-for) makes the browser refuse it, too.

/** An element with attributes, handlers and children. Children: nodes, texts, null, lists. */
export function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith('on'))
            node.addEventListener(name.slice(2), value);
        else if (name === 'class')
            node.className = value;
        else if (name === 'value')
            node.value = value;
        else
            node.setAttribute(name, value === true ? '' : value);
    }
    node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined));
    return node;
}

export const byId = (id) => document.getElementById(id);

export function button(label, onclick, attributes = {}) {
    return el('button', {type: 'button', onclick, ...attributes}, label);
}

export const fill = (node, ...children) => {
    node.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined));
    return node;
};

/** Says a short sentence in the corner of the page, and to screen readers. */
export function say(sentence) {
    const place = byId('toast');
    fill(place, el('p', {}, sentence));
    clearTimeout(place.timer);
    place.timer = setTimeout(() => fill(place), 5000);
}

export async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        say('Copied.');
    } catch {
        say('The browser did not allow copying. Select the text and copy it with the keyboard.');
    }
}

export function saveFile(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], {type}));
    const link = el('a', {href: url, download: name});
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The text of a file that the user chooses; null if none was chosen. */
export function askForFile(accept) {
    return new Promise((resolve) => {
        const input = el('input', {type: 'file', accept});
        input.addEventListener(
            'change', () => resolve(input.files.length ? input.files[0].text() : null));
        input.addEventListener('cancel', () => resolve(null));
        input.click();
    });
}

export function countText(n) { return Math.round(n).toLocaleString('en-GB'); }

/** 3 significant digits or so: "0.42", "12.3", "1,240". */
export function numberText(n) {
    if (!Number.isFinite(n)) return '–';
    if (Math.abs(n) >= 100) return countText(n);
    return n.toFixed(
                Math.abs(n) >= 10               ? 1 :
                    Math.abs(n) >= 1 || n === 0 ? 2 :
                                                  3)
               .replace(/\.?0+$/, '') ||
        '0';
}

export function msText(ms) {
    if (!Number.isFinite(ms)) return '–';
    if (ms < 1) return `${numberText(ms * 1000)} µs`;
    if (ms < 1000) return `${numberText(ms)} ms`;
    if (ms < 120000) return `${numberText(ms / 1000)} s`;
    return `${numberText(ms / 60000)} min`;
}

export function bytesText(n) {
    if (n < 1024) return `${n} bytes`;
    if (n < 1 << 20) return `${numberText(n / 1024)} KiB`;
    if (n < 1 << 30) return `${numberText(n / (1 << 20))} MiB`;
    return `${numberText(n / (1 << 30))} GiB`;
}

export const plural = (n, one, many = `${one}s`) => `${countText(n)} ${n === 1 ? one : many}`;

/** A value of the page's style sheet, as the canvases need it. */
export const cssColour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
