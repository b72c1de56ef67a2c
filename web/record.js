// record.js - steps of the engine, and what they say of each sequence.
//
// A StepStore takes the events of GET /v1/engine/steps, or a recording. Steps are columns: column
// numbers grow by one with each step, also where the server has skipped some. Old ones are dropped.
// The rows of a step are kept in one typed array, because 10,000 steps of 256 rows are many.

export const STEPS_MAX = 10000;
const DROP_STEPS = 1000; // dropped together, because removing from the front costs a copy

/** A sequence: one choice of a request. */
function newSequence(request, choice, tenant) {
    return {
        request,
        choice,
        tenant,
        arrived: null,
        prompt: 0,
        max: 0,
        waits: [],
        admissions: [],
        preemptions: [],
        segments: [],
        prefillSteps: 0,
        computed: 0,
        sampled: 0,
        firstToken: null,
        ended: null,
        lastColumn: 0,
    };
}

export const sequenceKey = (request, choice) => `${request}.${choice}`;

export class StepStore {
    constructor(hello, state) {
        this.hello = hello;
        this.state = state || {};
        this.steps = [];
        this.base = 0; // the column of steps[0]
        this.sequences = new Map();
        this.ids =
            new Map(); // by the engine's number of a request: what the API calls it, where known
        this.seatsUsed = 0;
        this.version = 0; // grows with every change
        this.at = {};
        for (const list of ['rows', 'waiting', 'arrived', 'admitted', 'preempted', 'ended'])
            this.at[list] = Object.fromEntries((hello[list] || []).map((name, i) => [name, i]));
        this.stride = (hello.rows || []).length; // numbers of a row
    }

    /** The rows of a step, one after another, as numbers. */
    packRows(rows) {
        const packed = new Float64Array(rows.length * this.stride);
        rows.forEach((row, i) => packed.set(row, i * this.stride));
        return packed.every((n) => n === (n | 0)) ? Int32Array.from(packed) : packed;
    }

    unpackRows(packed) {
        const rows = [];
        for (let i = 0; i < packed.length; i += this.stride)
            rows.push([...packed.subarray(i, i + this.stride)]);
        return rows;
    }

    /** One past the newest column. */
    get end() { return this.base + this.steps.length; }

    step(column) { return this.steps[column - this.base]; }

    find(request, choice, tenant) {
        const key = sequenceKey(request, choice);
        let sequence = this.sequences.get(key);
        if (!sequence)
            this.sequences.set(key, sequence = newSequence(request, choice, tenant || 0));
        return sequence;
    }

    /** The steps from..to are missing. */
    skip(from, to) { this.gap = {from, to}; }

    add(step) {
        const last = this.steps.at(-1);
        if (last && step.step <= last.step) return;
        if (this.gap) step.gap = this.gap;
        this.gap = null;
        const column = this.end;
        step.rows = this.packRows(step.rows || []);
        this.steps.push(step);
        this.takeArrivals(step);
        this.takePreemptions(
            step, column); // first, because those that were preempted wait from now on
        this.takeWaiting(step, last);
        this.takeAdmissions(step, column);
        this.takeRows(step, column);
        this.takeEnds(step);
        this.version++;
        if (this.steps.length > STEPS_MAX) this.dropOldest();
    }

    takeArrivals(step) {
        const at = this.at.arrived;
        for (const row of step.arrived || []) {
            const sequence = this.find(row[at.request], row[at.choice], row[at.tenant]);
            sequence.arrived = row[at.at_us];
            sequence.prompt = row[at.prompt];
            sequence.max = row[at.max];
            sequence.lastColumn = this.end;
        }
    }

    /** Time since the last step is counted for the reason that is given now. */
    takeWaiting(step, last) {
        const at = this.at.waiting;
        for (const row of step.waiting || []) {
            const sequence = this.find(row[at.request], row[at.choice], row[at.tenant]);
            const why = row[at.why];
            const since = Math.max(last ? last.at_us : step.at_us, sequence.arrived || 0);
            const spent = Math.max(0, step.at_us - since);
            const wait = sequence.waits.at(-1);
            if (wait && wait.why === why && wait.part === sequence.preemptions.length)
                wait.us += spent;
            else
                sequence.waits.push({why, us: spent, part: sequence.preemptions.length});
            sequence.lastColumn = this.end;
        }
    }

    takeAdmissions(step, column) {
        const at = this.at.admitted;
        for (const row of step.admitted || []) {
            const sequence = this.find(row[at.request], row[at.choice], row[at.tenant]);
            sequence.admissions.push({
                at: step.at_us,
                column,
                seat: row[at.seat],
                waited: row[at.waited_us],
                cached: row[at.cached],
                part: sequence.preemptions.length,
            });
            sequence.seat = row[at.seat];
        }
    }

    takePreemptions(step, column) {
        const at = this.at.preempted;
        for (const row of step.preempted || []) {
            const sequence = this.find(row[at.request], row[at.choice]);
            sequence.preemptions.push({
                at: step.at_us,
                column,
                seat: sequence.seat,
                why: row[at.why],
                how: row[at.how],
                forRequest: row[at.for_request],
                forChoice: row[at.for_choice],
                returned: null,
            });
            sequence.lastColumn = this.end;
        }
    }

    takeRows(step, column) {
        const at = this.at.rows;
        for (let row = 0; row < step.rows.length; row += this.stride) {
            const seat = step.rows[row + at.seat];
            const sequence = this.find(
                step.rows[row + at.request], step.rows[row + at.choice],
                step.rows[row + at.tenant]);
            const isSampled = step.rows[row + at.sampled] > 0;
            const segment = sequence.segments.at(-1);
            if (segment && segment.seat === seat && segment.to === column - 1)
                segment.to = column;
            else
                sequence.segments.push({seat, from: column, to: column});
            if (seat >= this.seatsUsed) this.seatsUsed = seat + 1;
            const preemption = sequence.preemptions.at(-1);
            if (preemption && preemption.returned === null && preemption.column < column)
                preemption.returned = step.at_us;
            sequence.seat = seat;
            sequence.lastColumn = column;
            sequence.computed += step.rows[row + at.count];
            if (sequence.firstToken === null) sequence.prefillSteps++;
            if (isSampled && sequence.firstToken === null)
                sequence.firstToken = step.at_us + step.us;
            if (isSampled) sequence.sampled += 1 + (step.rows[row + at.accepted] || 0);
        }
    }

    takeEnds(step) {
        const at = this.at.ended;
        for (const row of step.ended || []) {
            const sequence = this.find(row[at.request], row[at.choice]);
            sequence.ended = {why: row[at.why], generated: row[at.generated], at: row[at.at_us]};
            sequence.lastColumn = this.end;
        }
    }

    dropOldest() {
        this.steps.splice(0, DROP_STEPS);
        this.base += DROP_STEPS;
        if (this.ids.size > STEPS_MAX) this.ids.clear();
        for (const [key, sequence] of this.sequences) {
            if (sequence.ended && sequence.lastColumn < this.base)
                this.sequences.delete(key);
            else if (sequence.segments.length > 1)
                sequence.segments = sequence.segments.filter((s) => s.to >= this.base);
        }
    }

    /** The sequence in a seat at a column; null: the seat is empty. */
    sequenceAt(column, seat) {
        const step = this.step(column);
        const at = this.at.rows;
        for (let row = 0; step && row < step.rows.length; row += this.stride)
            if (step.rows[row + at.seat] === seat)
                return this.find(step.rows[row + at.request], step.rows[row + at.choice]);
        return null;
    }

    /** What a file holds. */
    recording() {
        const steps =
            this.steps.map(({gap, ...step}) => ({...step, rows: this.unpackRows(step.rows)}));
        return {jitney_recording: 1, hello: this.hello, state: this.state, steps};
    }
}

/** A store with the steps of a recording; throws a sentence if it is none. */
export function openRecording(value) {
    if (!value || value.jitney_recording !== 1 || !value.hello || !Array.isArray(value.steps))
        throw new Error(
            'This is not a recording of jitney: it has no "jitney_recording", "hello" or "steps".');
    const store = new StepStore(value.hello, value.state);
    let before = null;
    for (const step of value.steps.slice(-STEPS_MAX)) {
        if (before !== null && step.step > before + 1) store.skip(before + 1, step.step - 1);
        store.add(step);
        before = step.step;
    }
    return store;
}

/** The recording inside a text: JSON, or a page that holds one. */
export function parseRecording(text) {
    const match = /<script type="application\/json" id="recording">(.*?)<\/script>/s.exec(text);
    let value;
    try {
        value = JSON.parse(match ? match[1] : text);
    } catch {
        throw new Error(
            'This file holds no recording: it is neither JSON nor a page that jitney has written.');
    }
    return openRecording(value);
}

/** The page in one file with a recording in it; `template` is recording.html. */
export function recordingPage(template, recording) {
    const data = JSON.stringify(recording).replace(/</g, '\\u003c');
    const [before, after] = template.split(
        '<script type="application/json" id="recording">null</scr' +
        'ipt>');
    return `${before}<script type="application/json" id="recording">${data}</scr` +
        `ipt>${after}`;
}
