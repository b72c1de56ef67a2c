// conversation.js - conversations as trees, kept in the browser.
//
// A message has a parent; messages with the same parent are branches: an edited question, or
// another answer. `leaf` is the last message of the branch that is shown. Everything is kept in
// localStorage, one item for each conversation, and leaves the browser only in a request.

const LIST = 'jitney.chats';
const itemName = (id) => `jitney.chat.${id}`;
const TITLE_LETTERS = 60;

export const makeId = () => crypto.randomUUID ?
    crypto.randomUUID() :
    Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0'))
        .join('');

/** [{id, title, changed}], the latest first. */
export function listConversations() {
    try {
        const list = JSON.parse(localStorage.getItem(LIST)) || [];
        return list.filter((entry) => entry && typeof entry.id === 'string');
    } catch {
        return [];
    }
}

/** A conversation with all its members, whatever `value` lacks; null if it is none. */
function asConversation(value) {
    if (!value || typeof value !== 'object' || typeof value.nodes !== 'object' || !value.nodes)
        return null;
    const nodes = {};
    for (const [id, node] of Object.entries(value.nodes)) {
        if (!node || !['user', 'assistant'].includes(node.role) || typeof node.text !== 'string')
            continue;
        nodes[id] = {...node, id, parent: typeof node.parent === 'string' ? node.parent : null};
        const files = Array.isArray(node.files) ? node.files : [];
        nodes[id].files =
            files.filter((f) => f && typeof f.name === 'string' && typeof f.text === 'string');
    }
    const isLoop = (id) => {
        const seen = new Set();
        for (; id; id = nodes[id] && nodes[id].parent) {
            if (seen.has(id) || !nodes[id]) return true;
            seen.add(id);
        }
        return false;
    };
    for (const id of Object.keys(nodes))
        if (isLoop(id)) delete nodes[id];
    return {
        id: typeof value.id === 'string' ? value.id : makeId(),
        title: typeof value.title === 'string' ? value.title : '',
        system: typeof value.system === 'string' ? value.system : '',
        model: typeof value.model === 'string' ? value.model : '',
        sampling: value.sampling && typeof value.sampling === 'object' ? value.sampling : {},
        changed: Number(value.changed) || Date.now(),
        leaf: nodes[value.leaf] ? value.leaf : null,
        nodes,
    };
}

export function openConversation(id) {
    try {
        return asConversation(JSON.parse(localStorage.getItem(itemName(id))));
    } catch {
        return null;
    }
}

export function createConversation(like = {}) {
    return asConversation(
        {model: like.model, sampling: like.sampling, system: like.system, nodes: {}});
}

/** Throws a sentence if the browser's storage is full. */
export function saveConversation(chat) {
    chat.changed = Date.now();
    const list = listConversations().filter((entry) => entry.id !== chat.id);
    list.unshift({id: chat.id, title: chat.title, changed: chat.changed});
    try {
        localStorage.setItem(itemName(chat.id), JSON.stringify(chat));
        localStorage.setItem(LIST, JSON.stringify(list));
    } catch {
        throw new Error(
            'The browser has no room left for conversations (about 5 MB in all). ' +
            'Export and delete some of them.');
    }
}

export function deleteConversation(id) {
    localStorage.removeItem(itemName(id));
    localStorage.setItem(
        LIST, JSON.stringify(listConversations().filter((entry) => entry.id !== id)));
}

export function exportConversations(ids) {
    return JSON.stringify(
        {
            jitney_conversations: 1,
            conversations: ids.map(openConversation).filter(Boolean),
        },
        null, 1);
}

/** Adds the conversations of an exported file; the number of them. */
export function importConversations(text) {
    let value;
    try {
        value = JSON.parse(text);
    } catch {
        throw new Error('This file is not JSON. Choose one that "Export" has written.');
    }
    if (!value || value.jitney_conversations !== 1 || !Array.isArray(value.conversations))
        throw new Error(
            'This file has no "jitney_conversations". Choose one that "Export" has written.');
    const chats = value.conversations.map(asConversation).filter(Boolean);
    for (const chat of chats) {
        if (localStorage.getItem(itemName(chat.id))) chat.id = makeId();
        saveConversation(chat);
    }
    return chats.length;
}

// ---- the tree ----

export function addMessage(chat, parent, role, text, more = {}) {
    const node = {id: makeId(), parent, role, text, files: [], ...more};
    chat.nodes[node.id] = node;
    chat.leaf = node.id;
    if (!chat.title && role === 'user')
        chat.title = (text || 'Files').replace(/\s+/g, ' ').trim().slice(0, TITLE_LETTERS);
    return node;
}

/** The messages from the first to `leaf`. */
export function branchOf(chat, leaf = chat.leaf) {
    const list = [];
    for (let node = chat.nodes[leaf]; node; node = chat.nodes[node.parent]) list.unshift(node);
    return list;
}

export const siblingsOf = (chat, node) =>
    Object.values(chat.nodes)
        .filter((other) => other.parent === node.parent && other.role === node.role);

/** Shows the branch of `node`, down to its latest message. */
export function selectBranch(chat, node) {
    let leaf = node;
    for (;;) {
        const children = Object.values(chat.nodes).filter((other) => other.parent === leaf.id);
        if (!children.length) break;
        leaf = children.at(-1);
    }
    chat.leaf = leaf.id;
}

/** What the model reads of a message: its files, then its text. */
export function promptText(node) {
    const fence = (text) => {
        let mark = '```';
        while (text.includes(mark)) mark += '`';
        return mark;
    };
    const files = (node.files || []).map((file) => {
        const mark = fence(file.text);
        return `File ${file.name}:\n${mark}\n${file.text}\n${mark}\n`;
    });
    return [...files, node.text].join('\n');
}

export function promptMessages(chat, leaf) {
    const messages = branchOf(chat, leaf)
                         .filter((node) => node.role === 'user' || node.text)
                         .map((node) => ({role: node.role, content: promptText(node)}));
    return chat.system.trim() ? [{role: 'system', content: chat.system}, ...messages] : messages;
}
