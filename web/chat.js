// chat.js - the view at #chat: conversations, messages, the composer and the settings.
import {getJson, postJson} from './api.js';
import {askProbabilities, newAnswer, receiveAnswer, stopAnswer, underWay} from './answer.js';
import {
    addMessage,
    branchOf,
    createConversation,
    deleteConversation,
    exportConversations,
    importConversations,
    listConversations,
    openConversation,
    saveConversation,
    selectBranch,
} from './conversation.js';
import {askForFile, button, byId, bytesText, el, fill, plural, saveFile, say} from './dom.js';
import {messageElement, probabilitiesElement} from './message.js';
import {samplingFields, samplingOf} from './sampling.js';

const CURRENT = 'jitney.current';
const SAVE_MS = 300; // an answer under way is saved this often
const FILE_BYTES_MAX = 2 << 20;

const loaded = new Map(); // conversations by id: answers under way write to these objects
let chat = null;
let models = [];
let elements = new Map(); // message id -> its element
let draftFiles = [];
let edited = null; // the message that the composer edits

// ---- keeping ----

function setChat(next) {
    loaded.set(next.id, next);
    chat = next;
    sessionStorage.setItem(CURRENT, chat.id); // the tab shows its own conversation after a reload
}

const findChat = (id) => loaded.get(id) || openConversation(id);

let saveTimer = 0;

function saveNow() {
    clearTimeout(saveTimer);
    saveTimer = 0;
    if (!chat || !Object.keys(chat.nodes).length) return;
    try {
        saveConversation(chat);
    } catch (error) {
        say(error.message);
    }
}

function saveSoon() {
    if (!saveTimer) saveTimer = setTimeout(saveNow, SAVE_MS);
}

// ---- messages ----

const messagesPlace = () => byId('messages');

const isAtEnd = () => {
    const place = messagesPlace();
    return place.scrollHeight - place.scrollTop - place.clientHeight < 80;
};

const scrollToEnd = () => {
    messagesPlace().scrollTop = messagesPlace().scrollHeight;
};

const messageActions = {
    branch(node) {
        selectBranch(chat, node);
        saveNow();
        showMessages();
    },
    edit(node) {
        edited = node;
        draftFiles = [...node.files];
        const input = byId('composer-text');
        input.value = node.text;
        showComposer();
        input.focus();
    },
    regenerate(node) { askForAnswer(node.parent); },
    async probabilities(node) {
        const element = elements.get(node.id);
        const holder =
            el('div', {class: 'body'}, el('p', {class: 'note'}, 'Asking for the probabilities'));
        element.body.replaceWith(holder);
        const back = () => holder.replaceWith(element.body);
        try {
            const found = await askProbabilities(chat, node);
            const tokens = [];
            let length = 0;
            for (const token of found.tokens) {
                if (node.state !== 'done' && length >= node.text.length)
                    break; // it was stopped here
                tokens.push(token);
                length += token.token.length;
            }
            const isSame = found.text.startsWith(node.text) || node.text.startsWith(found.text);
            fill(
                holder,
                isSame ? null :
                         el('p', {class: 'note'},
                            'The server writes another answer now: ' +
                                'the model or its settings have changed since.'),
                probabilitiesElement(isSame ? tokens : found.tokens, back));
            holder.querySelector('.tokens').focus();
        } catch (error) {
            fill(
                holder, el('p', {class: 'error', role: 'alert'}, error.message),
                button('Back to the text', back));
        }
    },
};

function showMessages() {
    const branch = branchOf(chat);
    elements = new Map();
    const list = branch.map((node) => {
        const element = messageElement(chat, node, messageActions);
        elements.set(node.id, element);
        return element;
    });
    fill(messagesPlace(), list.length ? list : emptyState());
    scrollToEnd();
    showComposer();
    for (const node of branch)
        if (node.state === 'running' && !underWay.has(node.id)) follow(node, false);
}

function emptyState() {
    const examples =
        ['Why is the sky blue?', 'Write a haiku about a bus.', 'Name three primary colours.'];
    return el(
        'div', {class: 'empty-state'}, el('h2', {}, 'What would you like to know?'),
        el('p', {}, 'Type a question below. The answer comes word by word, from this machine.'),
        el('p', {class: 'examples'}, examples.map((text) => button(text, () => {
                                                      byId('composer-text').value = text;
                                                      submitDraft();
                                                  }))));
}

/** Receives an answer and shows it, at most once a frame. */
function follow(node, isNew) {
    const owner = chat;
    let isPlanned = false;
    const draw = () => {
        isPlanned = false;
        const element = elements.get(node.id);
        if (owner !== chat || !element) return;
        const wasAtEnd = isAtEnd();
        element.update();
        if (wasAtEnd) scrollToEnd();
    };
    receiveAnswer(owner, node, isNew, () => {
        if (owner === chat) saveSoon();
        if (!isPlanned) requestAnimationFrame(draw);
        isPlanned = true;
    }).then(() => {
        try {
            if (loaded.has(owner.id)) saveConversation(owner);
        } catch (error) {
            say(error.message);
        }
        draw();
        showComposer();
        showList();
    });
    showComposer();
}

function askForAnswer(parent) {
    const node = addMessage(chat, parent, 'assistant', '', newAnswer(chat, byId('model').value));
    saveNow();
    showMessagesAndFollow(node);
    showList();
}

function showMessagesAndFollow(node) {
    underWay.set(node.id, null); // so that showMessages does not ask for it as an old one
    showMessages();
    follow(node, true);
}

const runningNode = () => chat && branchOf(chat).find((node) => node.state === 'running');

// ---- the composer ----

function showComposer() {
    const isRunning = Boolean(runningNode());
    byId('send').hidden = isRunning;
    byId('stop').hidden = !isRunning;
    byId('send').textContent = edited ? 'Send again' : 'Send';
    byId('cancel-edit').hidden = !edited;
    fill(
        byId('draft-files'),
        draftFiles.map(
            (file, i) =>
                el('li', {}, el('span', {}, file.name),
                   el('span', {class: 'count'},
                      file.tokens === undefined ? bytesText(file.text.length) :
                                                  plural(file.tokens, 'token')),
                   button('×', () => {
                       draftFiles.splice(i, 1);
                       showComposer();
                   }, {'aria-label': `Remove ${file.name}`}))));
}

function endDraft() {
    edited = null;
    draftFiles = [];
    byId('composer-text').value = '';
}

function submitDraft() {
    const text = byId('composer-text').value.trim();
    if ((!text && !draftFiles.length) || runningNode()) return;
    const parent = edited ? edited.parent : chat.leaf;
    const node = addMessage(chat, parent, 'user', text, {files: draftFiles});
    endDraft();
    askForAnswer(node.id);
}

async function addFile(file) {
    if (file.size > FILE_BYTES_MAX) {
        say(`${file.name} has ${bytesText(file.size)}; at most ${
            bytesText(FILE_BYTES_MAX)} are read.`);
        return;
    }
    const text = await file.text();
    if (text.includes('\u0000')) {
        say(`${file.name} is not a text file.`);
        return;
    }
    const entry = {name: file.name, text};
    draftFiles.push(entry);
    showComposer();
    try {
        entry.tokens =
            (await postJson('/tokenize', {model: byId('model').value || undefined, content: text}))
                .count;
    } catch (error) {
        say(error.message);
    }
    showComposer();
}

function bindComposer() {
    const input = byId('composer-text');
    byId('composer').addEventListener('submit', (event) => {
        event.preventDefault();
        submitDraft();
    });
    input.addEventListener('keydown', (event) => {
        if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            submitDraft();
        }
        if (event.key === 'Escape' && edited) byId('cancel-edit').click();
    });
    byId('stop').addEventListener('click', () => {
        const node = runningNode();
        if (node) stopAnswer(node);
        input.focus();
    });
    byId('cancel-edit').addEventListener('click', () => {
        endDraft();
        showComposer();
        input.focus();
    });
    byId('add-file').addEventListener('click', () => byId('file-input').click());
    byId('file-input').addEventListener('change', (event) => {
        for (const file of event.target.files) addFile(file);
        event.target.value = '';
    });
    const view = byId('chat-view');
    view.addEventListener('dragover', (event) => {
        event.preventDefault();
        view.classList.add('dropping');
    });
    view.addEventListener('dragleave', () => view.classList.remove('dropping'));
    view.addEventListener('drop', (event) => {
        event.preventDefault();
        view.classList.remove('dropping');
        for (const file of event.dataTransfer.files) addFile(file);
    });
    document.addEventListener('keydown', (event) => {
        if (event.key === 'Escape' && runningNode() && !byId('chat-view').hidden)
            byId('stop').click();
    });
}

// ---- the list of conversations ----

function showList() {
    const list = listConversations();
    fill(
        byId('chat-list'),
        list.map(
            (entry) =>
                el('li', {},
                   button(
                       entry.title || 'Without a title', () => openChat(entry.id),
                       {class: 'title', 'aria-current': entry.id === chat.id ? 'true' : null}),
                   button(
                       '×', () => removeChat(entry),
                       {class: 'remove', 'aria-label': `Delete "${entry.title}"`}))));
    byId('chats-empty').hidden = list.length > 0;
    byId('export').disabled = !list.length;
}

// On narrow screens, lists and settings open over the messages.
const DRAWERS = {
    'chats': {button: 'toggle-chats', label: 'Conversations'},
    'chat-settings': {button: 'toggle-settings', label: 'Settings'},
};

function setDrawer(name, isOpen) {
    const toggle = byId(DRAWERS[name].button);
    byId(name).classList.toggle('open', isOpen);
    toggle.setAttribute('aria-expanded', String(isOpen));
    toggle.textContent = isOpen ? 'Close' : DRAWERS[name].label;
}

function openChat(id) {
    saveNow();
    setChat(findChat(id) || createConversation());
    endDraft();
    showAll();
    setDrawer('chats', false);
}

function startChat() {
    saveNow();
    setChat(createConversation(chat || {}));
    endDraft();
    showAll();
    setDrawer('chats', false);
    byId('composer-text').focus();
}

function removeChat(entry) {
    if (!confirm(`Delete the conversation "${entry.title}"? It cannot be brought back.`)) return;
    for (const node of Object.values((findChat(entry.id) || chat).nodes)) stopAnswer(node);
    deleteConversation(entry.id);
    loaded.delete(entry.id);
    if (entry.id === chat.id) setChat(createConversation(chat));
    showAll();
}

async function importFile() {
    const text = await askForFile('application/json,.json');
    if (text === null) return;
    try {
        say(`${plural(importConversations(text), 'conversation')} imported.`);
        showList();
    } catch (error) {
        say(error.message);
    }
}

function bindList() {
    byId('new-chat').addEventListener('click', startChat);
    byId('export').addEventListener('click', () => {
        saveNow();
        saveFile(
            'conversations.json', 'application/json',
            exportConversations(listConversations().map((e) => e.id)));
    });
    byId('import').addEventListener('click', importFile);
    for (const name of Object.keys(DRAWERS))
        byId(DRAWERS[name].button)
            .addEventListener(
                'click', () => setDrawer(name, !byId(name).classList.contains('open')));
}

// ---- settings ----

function showModels() {
    const select = byId('model');
    const texts = models.filter((m) => !m.meta || m.meta.writes !== false);
    fill(select, texts.map((m) => el('option', {value: m.id}, m.id)));
    if (texts.some((m) => m.id === chat.model)) select.value = chat.model;
    byId('model-field').hidden = texts.length === 0;
}

function showSettings() {
    fill(byId('sampling'), samplingFields(samplingOf(chat), (name, value) => {
             chat.sampling = {...chat.sampling, [name]: value};
             saveNow();
         }));
    byId('system').value = chat.system;
    showModels();
}

function bindSettings() {
    byId('system').addEventListener('change', (event) => {
        chat.system = event.target.value;
        saveNow();
    });
    byId('model').addEventListener('change', (event) => {
        chat.model = event.target.value;
        saveNow();
    });
}

function showAll() {
    showSettings();
    showMessages();
    showList();
}

/** Called once, when the page opens. */
export function startChatView() {
    const id = sessionStorage.getItem(CURRENT);
    const latest = listConversations()[0];
    setChat((id && findChat(id)) || (!id && latest && findChat(latest.id)) || createConversation());
    bindComposer();
    bindList();
    bindSettings();
    showAll();
    window.addEventListener('pagehide', saveNow);
    loadModels();
}

/** Asks which models there are; again after a key was given. */
export async function loadModels() {
    try {
        models = (await getJson('/v1/models')).data;
        showModels();
    } catch (error) {
        say(error.message);
    }
}
