// metrics.js - reads the text of /metrics, and finds rates and percentiles between two readings.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Map of name -> [{labels, value}]. */
export function parseMetrics(text) {
    const found = new Map();
    for (const line of text.split('\n')) {
        const match = line[0] === '#' ? null : LINE.exec(line);
        if (!match) continue;
        const labels = {};
        for (const [, name, value] of (match[2] || '').matchAll(LABEL)) labels[name] = value;
        if (!found.has(match[1])) found.set(match[1], []);
        found.get(match[1]).push({labels, value: Number(match[3])});
    }
    return found;
}

/** The sum of the samples of `name` that belong to `model` ('' is all models) and pass `filter`. */
export function sumOf(metrics, name, model = '', filter = null) {
    return (metrics.get(name) || [])
        .filter((s) => (!model || s.labels.model_name === model) && (!filter || filter(s.labels)))
        .reduce((sum, s) => sum + s.value, 0);
}

/** The buckets of a histogram: [[upper bound, count up to it], ...]. */
export function bucketsOf(metrics, name, model = '') {
    const counts = new Map();
    for (const s of metrics.get(`${name}_bucket`) || []) {
        if (model && s.labels.model_name !== model) continue;
        const bound = s.labels.le === '+Inf' ? Infinity : Number(s.labels.le);
        counts.set(bound, (counts.get(bound) || 0) + s.value);
    }
    return [...counts].sort((a, b) => a[0] - b[0]);
}

/**
 * The value below which `share` of the observations between two readings lie, as Prometheus finds
 * it: with straight lines inside a bucket. NaN: there were none.
 */
export function percentileOf(now, before, share) {
    const earlier = new Map(before);
    const counts = now.map(([bound, count]) => [bound, count - (earlier.get(bound) || 0)]);
    const total = counts.length ? counts.at(-1)[1] : 0;
    if (total <= 0) return NaN;
    const wanted = share * total;
    let low = 0, below = 0;
    for (const [bound, count] of counts) {
        if (count >= wanted) {
            if (bound === Infinity) return low;
            return low + (bound - low) * (count > below ? (wanted - below) / (count - below) : 1);
        }
        low = bound;
        below = count;
    }
    return low;
}

export const isErrorStatus = (labels) => Number(labels.status || labels.code) >= 400;
