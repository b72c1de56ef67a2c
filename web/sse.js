// sse.js - server-sent events from the body of a fetch.
//
// EventSource cannot send a key, so the page reads streams itself.

/** Calls onEvent({id, event, data}) for each event of the stream until it ends. */
export async function readEvents(body, onEvent) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    let found = {id: '', event: '', data: []};
    const onLine = (line) => {
        if (line === '') {
            if (found.data.length) onEvent({...found, data: found.data.join('\n')});
            found = {id: '', event: '', data: []};
            return;
        }
        const colon = line.indexOf(':');
        if (colon <= 0) return; // a comment, which keeps the connection open
        const value = line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
        const name = line.slice(0, colon);
        if (name === 'data')
            found.data.push(value);
        else if (name === 'id' || name === 'event')
            found[name] = value;
    };
    for (;;) {
        const {value, done} = await reader.read();
        if (done) return;
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        for (const line of lines) onLine(line.endsWith('\r') ? line.slice(0, -1) : line);
    }
}
