// main.js - the page: its views, its theme, and what the server says of itself.
import {forgetKey, hasKey} from './api.js';
import {startBusView, startRecordedView} from './bus.js';
import {startChatView} from './chat.js';
import {byId, el, fill} from './dom.js';
import {startLoadView, startReading} from './load.js';
import {openRecording} from './record.js';
import {makeTryPanel} from './tryit.js';

const VIEWS = ['chat', 'bus', 'load'];
const HEALTH_MS = 5000;

// ---- theme ----

const THEMES = ['system', 'light', 'dark'];
const darkQuery = matchMedia('(prefers-color-scheme: dark)');
let theme = 'system';

function readTheme() {
    try {
        const stored = localStorage.getItem('jitney.theme');
        if (THEMES.includes(stored)) theme = stored;
    } catch {
        // a page from a file has no storage in some browsers
    }
}

function applyTheme() {
    const isDark = theme === 'dark' || (theme === 'system' && darkQuery.matches);
    document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
    byId('theme-button').textContent = {system: 'Auto', light: 'Light', dark: 'Dark'}[theme];
    byId('theme-button').setAttribute('aria-label', `Colours: ${theme}`);
    document.dispatchEvent(new Event('themechange'));
}

function bindTheme() {
    readTheme();
    applyTheme();
    darkQuery.addEventListener('change', applyTheme);
    byId('theme-button').addEventListener('click', () => {
        theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
        try {
            localStorage.setItem('jitney.theme', theme);
        } catch {
            // it lasts until the page is closed
        }
        applyTheme();
    });
}

// ---- views ----

const started = new Set();
const STARTERS = {
    chat: startChatView,
    bus: () => {
        makeTryPanel(startBusView());
        startReading();
    },
    load: () => {
        startOnce('bus'); // its steps say what each tenant does
        startLoadView();
    },
};

function startOnce(view) {
    if (started.has(view)) return;
    started.add(view);
    STARTERS[view]();
}

function showView() {
    const wanted = location.hash.slice(1).split('/')[0];
    const view = VIEWS.includes(wanted) ? wanted : 'chat';
    for (const name of VIEWS) {
        byId(`${name}-view`).hidden = name !== view;
        const link = byId(`go-${name}`);
        if (name === view)
            link.setAttribute('aria-current', 'page');
        else
            link.removeAttribute('aria-current');
    }
    startOnce(view);
}

// ---- health ----

async function showHealth() {
    const place = byId('health');
    try {
        const response = await fetch('/readyz', {cache: 'no-store'});
        const {status} = await response.json();
        place.textContent = status === 'ok' ? 'Ready' : status;
        place.className = status === 'ok' ? 'ok' : '';
    } catch {
        place.textContent = 'The server cannot be reached';
        place.className = '';
    }
    byId('key-button').hidden = !hasKey();
}

/** The recording that this page holds, if it is a file with one. */
function embeddedRecording() {
    const place = byId('recording');
    return place && JSON.parse(place.textContent);
}

function startRecorded(value) {
    for (const name of VIEWS) byId(`${name}-view`).hidden = name !== 'bus';
    document.querySelector('#top nav').hidden = true;
    byId('health').textContent =
        `Recording of ${value.hello.model} by jitney ${value.hello.jitney}`;
    try {
        startRecordedView(openRecording(value));
    } catch (error) {
        fill(byId('bus-view'), el('p', {class: 'error'}, error.message));
    }
}

function startLive() {
    byId('key-button').addEventListener('click', () => {
        forgetKey();
        location.reload();
    });
    window.addEventListener('hashchange', showView);
    showView();
    showHealth();
    setInterval(showHealth, HEALTH_MS);
}

bindTheme();
const embedded = embeddedRecording();
if (embedded)
    startRecorded(embedded);
else
    startLive();
