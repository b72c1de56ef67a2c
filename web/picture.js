// picture.js - draws the bus: seats over steps, and the strips below.
//
// Every step is a column of an image with one pixel for each seat, which is drawn magnified. So a
// frame costs the same whether 4 or 256 seats are taken, and a new step costs one column.
import {cssColour, msText} from './dom.js';
import {STEPS_MAX} from './record.js';

const AXIS_PX = 22; // above the seats
const LABEL_PX = 44; // to the left of them
const COLUMNS = STEPS_MAX + 1024; // of the image; a store keeps fewer
export const ZOOMS = [1, 2, 3, 4, 6, 8, 12, 16, 24];
const EMPTY = 0, PREFILL = 1, DECODE = 2, CACHED = 3, SWAP = 4, RECOMPUTE = 5;
const COLOUR_NAMES = ['empty', 'prefill', 'decode', 'cached', 'swap', 'recompute'];

const rgbaOf = (colour) => {
    const n = parseInt(colour.slice(1), 16);
    return [n >> 16 & 255, n >> 8 & 255, n & 255, 255];
};

/** Makes a canvas as large as its box, in device pixels; its context in CSS pixels. */
export function fitCanvas(canvas, width, height) {
    const scale = Math.min(2, window.devicePixelRatio || 1);
    const w = Math.round(width * scale), h = Math.round(height * scale);
    if (canvas.width !== w || canvas.height !== h) {
        canvas.width = w;
        canvas.height = h;
    }
    const context = canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    return context;
}

export class Picture {
    constructor(store) {
        this.store = store;
        this.zoom = 6;
        this.right = null; // the column at the right edge; null: the newest
        this.selected = null; // a sequence
        this.strip = document.createElement('canvas');
        this.drawn = store.base; // columns below this are in the strip
        this.rows = 0;
        this.readColours();
    }

    readColours() {
        this.colours = Object.fromEntries([
            'empty', 'prefill', 'decode', 'cached', 'swap', 'recompute', 'text', 'soft', 'line',
            'surface', 'mark', 'target', 'used', 'shared', 'kept', 'free', 'accent', 'line-c'
        ].map((name) => [name, cssColour(name)]));
        this.pixels = COLOUR_NAMES.map((name) => rgbaOf(this.colours[name]));
        this.drawn = this.store.base;
    }

    /** Seats that are shown: those that were used, in groups of eight. */
    get seats() {
        const wanted = Math.max(8, Math.ceil(this.store.seatsUsed / 8) * 8);
        return Math.min(
            wanted, Math.max(this.store.hello.seats || wanted, this.store.seatsUsed, 1));
    }

    get rowPx() { return Math.max(3, Math.min(20, Math.floor(480 / this.seats))); }

    get heightPx() { return AXIS_PX + this.seats * this.rowPx + 1; }

    /** The largest zoom, below 1 if need be, at which `columns` fit into `width`. */
    zoomFor(width, columns) {
        const exact = Math.max(1, width - LABEL_PX) / Math.max(1, columns);
        return ZOOMS.findLast((zoom) => zoom <= exact) || exact;
    }

    /** The first and one past the last column that fit into `width`. */
    window(width) {
        const fits = Math.max(1, Math.floor((width - LABEL_PX) / this.zoom));
        const end = this.right === null ? this.store.end : Math.min(this.store.end, this.right);
        return [Math.max(this.store.base, end - fits), end];
    }

    // ---- the image of one pixel a cell ----

    drawColumns() {
        const store = this.store;
        if (this.rows !== this.seats) {
            this.rows = this.seats;
            this.strip.width = COLUMNS;
            this.strip.height = this.rows;
            this.drawn = store.base;
        }
        if (this.drawn < store.base) this.drawn = store.base;
        const context = this.strip.getContext('2d');
        for (; this.drawn < store.end; this.drawn++)
            context.putImageData(
                this.columnImage(context, store.step(this.drawn), this.drawn), this.drawn % COLUMNS,
                0);
    }

    columnImage(context, step, column) {
        const cells = new Uint8Array(this.rows);
        const at = this.store.at.rows;
        const {rows} = step;
        for (let row = 0; row < rows.length; row += this.store.stride) {
            const asked = rows[row + at.count] - rows[row + at.drafts];
            const isDecode = rows[row + at.sampled] && asked === 1;
            const isCached = rows[row + at.cached] > rows[row + at.count];
            cells[rows[row + at.seat]] = isDecode ? DECODE : isCached ? CACHED : PREFILL;
        }
        const pre = this.store.at.preempted;
        for (const row of step.preempted || []) {
            const sequence = this.store.find(row[pre.request], row[pre.choice]);
            const found = sequence.preemptions.find((p) => p.column === column);
            if (found && found.seat !== undefined && cells[found.seat] === EMPTY)
                cells[found.seat] = row[pre.how] === 'swap' ? SWAP : RECOMPUTE;
        }
        const image = context.createImageData(1, this.rows);
        for (let i = 0; i < this.rows; i++) image.data.set(this.pixels[cells[i]], i * 4);
        return image;
    }

    // ---- the seats ----

    draw(canvas, width) {
        const context = fitCanvas(canvas, width, this.heightPx);
        const [from, to] = this.window(width);
        this.drawColumns();
        context.fillStyle = this.colours.surface;
        context.fillRect(0, 0, width, this.heightPx);
        this.drawCells(context, from, to);
        this.drawGrid(context, width, from, to);
        this.drawEvents(context, from, to);
        this.drawSelected(context, from, to);
        this.drawAxis(context, from, to);
    }

    drawCells(context, from, to) {
        context.imageSmoothingEnabled = false;
        for (let column = from; column < to;) {
            const source = column % COLUMNS;
            const count = Math.min(to - column, COLUMNS - source);
            context.drawImage(
                this.strip, source, 0, count, this.rows, LABEL_PX + (column - from) * this.zoom,
                AXIS_PX, count * this.zoom, this.rows * this.rowPx);
            column += count;
        }
    }

    drawGrid(context, width, from, to) {
        const right = LABEL_PX + (to - from) * this.zoom;
        const bottom = AXIS_PX + this.rows * this.rowPx;
        context.fillStyle = this.colours.surface;
        context.beginPath();
        if (this.rowPx >= 4)
            for (let i = 0; i <= this.rows; i++)
                context.rect(LABEL_PX, AXIS_PX + i * this.rowPx, right - LABEL_PX, 1);
        if (this.zoom >= 4)
            for (let c = from; c <= to; c++)
                context.rect(LABEL_PX + (c - from) * this.zoom, AXIS_PX, 1, bottom - AXIS_PX);
        context.fill();
        context.fillStyle = this.colours.soft;
        context.font = '11px system-ui, sans-serif';
        context.textBaseline = 'middle';
        const every = this.rowPx >= 12 ? 1 : Math.ceil(12 / this.rowPx / 4) * 4;
        for (let i = 0; i < this.rows; i += every)
            context.fillText(String(i), 8, AXIS_PX + (i + 0.5) * this.rowPx + 0.5);
    }

    /** Cached prefixes, preemptions and gaps, which are few. */
    drawEvents(context, from, to) {
        const at = this.store.at.rows;
        for (let column = from; column < to; column++) {
            const step = this.store.step(column);
            const x = LABEL_PX + (column - from) * this.zoom;
            if (step.gap) {
                context.fillStyle = this.colours.target;
                context.fillRect(x, AXIS_PX, 1, this.rows * this.rowPx);
            }
            if (!step.admitted || this.zoom < 4) continue;
            const {rows} = step;
            for (let row = 0; row < rows.length; row += this.store.stride) {
                const cached = rows[row + at.cached];
                if (!cached) continue;
                const share = cached / (cached + rows[row + at.count]);
                const y = AXIS_PX + rows[row + at.seat] * this.rowPx;
                context.fillStyle = this.colours.prefill;
                context.fillRect(x + 1, y + 1, this.zoom - 1, this.rowPx - 1);
                context.fillStyle = this.colours.cached;
                context.fillRect(
                    x + 1, y + 1, this.zoom - 1, Math.max(1, (this.rowPx - 1) * share));
            }
        }
    }

    drawSelected(context, from, to) {
        if (!this.selected) return;
        context.strokeStyle = this.colours.mark;
        context.lineWidth = 2;
        for (const s of this.selected.segments) {
            if (s.to < from || s.from >= to) continue;
            const x = LABEL_PX + (Math.max(s.from, from) - from) * this.zoom;
            const w = (Math.min(s.to + 1, to) - Math.max(s.from, from)) * this.zoom;
            context.strokeRect(x + 0.5, AXIS_PX + s.seat * this.rowPx + 0.5, w, this.rowPx);
        }
    }

    drawAxis(context, from, to) {
        const {hello} = this.store;
        const every = Math.max(1, Math.ceil(110 / this.zoom));
        context.fillStyle = this.colours.soft;
        context.textBaseline = 'middle';
        for (let column = from; column < to; column++) {
            if (column % every) continue;
            const x = LABEL_PX + (column - from) * this.zoom;
            const at = new Date((hello.epoch_ms || 0) + this.store.step(column).at_us / 1000);
            context.fillRect(x, AXIS_PX - 5, 1, 5);
            context.fillText(at.toISOString().slice(11, 22), x + 3, AXIS_PX - 12);
        }
    }

    // ---- the strips below ----

    /**
     * One value for each column, as bars, and `lineOf` over them. Returns the top of the scale.
     * A few bars that are much larger than all others are cut, so that the others can be seen.
     */
    drawBars(canvas, width, height, layers, lineOf) {
        const context = fitCanvas(canvas, width, height);
        const [from, to] = this.window(width);
        context.fillStyle = this.colours.surface;
        context.fillRect(0, 0, width, height);
        const sums = new Float64Array(to - from);
        let top = 0;
        for (let c = from; c < to; c++) {
            const step = this.store.step(c);
            sums[c - from] = layers.reduce((sum, [, valueOf]) => sum + valueOf(step), 0);
            top = Math.max(top, sums[c - from], lineOf ? lineOf(step) : 0);
        }
        if (!top) return 0;
        const usual = sums.sort()[Math.floor(sums.length * 0.95)] * 3;
        if (usual > 0 && usual < top) top = usual;
        const gap = this.zoom >= 4 ? 1 : 0;
        const base = new Float64Array(to - from);
        for (const [colour, valueOf] of layers) {
            context.fillStyle = this.colours[colour];
            context.beginPath();
            for (let c = from; c < to; c++) {
                const h = Math.min(1, valueOf(this.store.step(c)) / top) * (height - 2);
                if (h > 0)
                    context.rect(
                        LABEL_PX + (c - from) * this.zoom, height - base[c - from] - h,
                        this.zoom - gap, h);
                base[c - from] += h;
            }
            context.fill();
        }
        if (lineOf)
            this.drawLine(context, from, to, height, (step) => lineOf(step) / top * (height - 2));
        return top;
    }

    drawLine(context, from, to, height, heightOf) {
        context.fillStyle = this.colours.target;
        context.beginPath();
        for (let c = from; c < to; c++) {
            const h = heightOf(this.store.step(c));
            if (h > 0) context.rect(LABEL_PX + (c - from) * this.zoom, height - h, this.zoom, 1.5);
        }
        context.fill();
    }

    /** {column, seat} under a point of the canvas; null: none. */
    cellAt(x, y, width) {
        const [from, to] = this.window(width);
        const column = from + Math.floor((x - LABEL_PX) / this.zoom);
        const seat = Math.floor((y - AXIS_PX) / this.rowPx);
        if (x < LABEL_PX || column >= to || seat < 0 || seat >= this.rows) return null;
        return {column, seat};
    }
}

/** The KV blocks as a map: run lengths of free, cached, used and shared blocks. */
export function drawBlockMap(canvas, width, map, colours) {
    const total = map.reduce((sum, [, count]) => sum + count, 0);
    if (!total) return;
    let cell = 14;
    while (cell > 2 && Math.ceil(total / Math.floor(width / cell)) * cell > 180) cell--;
    const across = Math.max(1, Math.floor(width / cell));
    const per = Math.max(1, Math.ceil(total / across / Math.floor(180 / cell))); // blocks in a cell
    const cells = Math.ceil(total / per);
    const context = fitCanvas(canvas, width, Math.ceil(cells / across) * cell);
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, width, 200);
    const names = ['free', 'kept', 'used', 'shared'];
    let at = 0;
    for (const [state, count] of map) {
        context.fillStyle = colours[names[state]] || colours.free;
        context.beginPath();
        for (let i = Math.floor(at / per); i < Math.ceil((at + count) / per); i++)
            context.rect(i % across * cell, Math.floor(i / across) * cell, cell - 1, cell - 1);
        context.fill();
        at += count;
    }
}

export const stepTimeText = (us) => msText(us / 1000);
