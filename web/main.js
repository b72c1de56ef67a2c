// main.js - the page: its views, its theme, and what the server says of itself.
import { forgetKey, hasKey } from './api.js';
import { startChatView } from './chat.js';
import { byId } from './dom.js';

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
    byId('theme-button').textContent = { system: 'Auto', light: 'Light', dark: 'Dark' }[theme];
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
const STARTERS = { chat: startChatView };

function showView() {
    const wanted = location.hash.slice(1).split('/')[0];
    const view = VIEWS.includes(wanted) ? wanted : 'chat';
    for (const name of VIEWS) {
        byId(`${name}-view`).hidden = name !== view;
        const link = byId(`go-${name}`);
        if (name === view) link.setAttribute('aria-current', 'page');
        else link.removeAttribute('aria-current');
    }
    if (!started.has(view) && STARTERS[view]) STARTERS[view]();
    started.add(view);
}

// ---- health ----

async function showHealth() {
    const place = byId('health');
    try {
        const response = await fetch('/readyz', { cache: 'no-store' });
        const { status } = await response.json();
        place.textContent = status === 'ok' ? 'Ready' : status;
        place.className = status === 'ok' ? 'ok' : '';
    } catch {
        place.textContent = 'The server cannot be reached';
        place.className = '';
    }
    byId('key-button').hidden = !hasKey();
}

bindTheme();
byId('key-button').addEventListener('click', () => {
    forgetKey();
    location.reload();
});
window.addEventListener('hashchange', showView);
showView();
showHealth();
setInterval(showHealth, HEALTH_MS);
