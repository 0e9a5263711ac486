"""The script that keeps attempts and draws them as lanes of pixels. Pure.

The cost of a drawing is bounded by the pixels: what is narrower than one shares it with what is
beside it, and the pixel has the colour of the function that took most of it. So a lane is a row of
numbers, which the browser stretches to the height of a bar, and a hundred thousand attempts take a
few milliseconds. It reads chunks of columns (`attempt_columns.py`).
"""

from __future__ import annotations

from typing import Final

from .timelines import LANE, N_COLOURS

#: Names and numbers of the script.
_NUMBERS: Final = {
    "MAX_DISK": 5000,  # times of spilling that are kept of one worker
    "OTHER": N_COLOURS,  # the colour of functions without one of their own
    "LEAST_LANE": LANE,  # pixels
    "ENOUGH_LANE": 28,  # what the strip above the lanes leaves to them, if there is room
    "MOST_LANE": 96,
    "CURVE": 48,  # the strip, at least
    "MOST_CURVE": 240,
    "TEXT_LANE": 18,  # bars of lanes of this height have names, if they are so wide
    "LEAST_NAMED": 30,
    "MARGIN_S": 10,  # inputs of attempts that begin so much later are drawn
}


_MODEL: Final = """\
// The attempts of one thread in order of their starts, in columns that grow.
class Lane {
  constructor(host, worker, address, thread) {
    Object.assign(this, {host, worker, address, thread, from: 0, to: 0, size: 0, isMixed: false,
                         open: null,  // what runs there now: {key, name, fn, start}
                         disk: []});  // what its worker spilled: {start, stop, nbytes, ...}
    this.columns = {start: Float64Array, stop: Float64Array, came: Float64Array, got: Float64Array,
                    waited: Float32Array, fn: Uint32Array, chunk: Uint32Array, row: Uint32Array,
                    failed: Uint8Array};
    this.make(64);
  }
  make(size) {
    for (const [name, Type] of Object.entries(this.columns)) {
      const old = this[name], column = this[name] = new Type(size);
      if (old) column.set(old.subarray(this.from, this.to));
    }
    Object.assign(this, {to: this.to - this.from, from: 0, size});
  }
  add(start, stop) {
    if (this.to === this.size) this.make(Math.max(64, 2 * (this.to - this.from)));
    let i = this.to++;
    // A clock that is placed anew may put attempts before some that were read earlier.
    for (; i > this.from && this.start[i - 1] > start; i--)
      for (const name in this.columns) this[name][i] = this[name][i - 1];
    if (i < this.to - 1) this.isMixed = true;
    this.start[i] = start;
    this.stop[i] = stop;
    return i;
  }
  drop(chunk, dropped) {
    for (; this.from < this.to && this.chunk[this.from] <= chunk; this.from++)
      dropped(this.fn[this.from]);
    if (!this.isMixed) return;
    let to = this.from;
    for (let i = to; i < this.to; i++) {
      if (this.chunk[i] <= chunk) { dropped(this.fn[i]); continue; }
      for (const name in this.columns) this[name][to] = this[name][i];
      to += 1;
    }
    this.to = to;
  }
  // The first attempt that ends after an instant.
  after(instant) {
    let low = this.from, high = this.to;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stop[middle] > instant) high = middle; else low = middle + 1;
    }
    return low;
  }
}

// All attempts that are kept, by lane; the oldest chunks give way.
class Attempts {
  constructor() { this.clear(); }
  clear() {
    Object.assign(this, {lanes: new Map(), functions: [], numbers: new Map(), chunks: new Map(),
                         disks: new Map(),
                         total: 0, nRaised: 0, nFetched: 0, nOpen: 0, last: 0, changed: true});
  }
  lane(host, worker, address, thread) {
    const name = JSON.stringify([host, worker, address, thread]);
    let lane = this.lanes.get(name);
    if (!lane) {
      this.lanes.set(name, lane = new Lane(host, worker, address, thread));
      lane.disk = this.disk(host, worker, address);
      this.changed = true;
    }
    return lane;
  }
  disk(...worker) {
    const name = JSON.stringify(worker);
    if (!this.disks.has(name)) this.disks.set(name, []);
    return this.disks.get(name);
  }
  fn(name) {
    let number = this.numbers.get(name);
    if (number === undefined) {
      this.numbers.set(name, number = this.functions.length);
      this.functions.push({name, n: 0, nOpen: 0, colour: OTHER});
    }
    return number;
  }
  add(bytes) {
    const view = new DataView(bytes), length = view.getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
    const n = head.n, has = new Set(head.columns);
    let at = 4 + length;
    const column = (Type) => {
      const found = new Type(bytes, at, n);
      at += found.byteLength;
      return found;
    };
    const stops = column(Float64Array), durations = column(Float32Array);
    const waits = has.has("waited") ? column(Float32Array) : null;
    const arrivals = has.has("fetched") ? column(Float32Array) : null;
    const fetches = arrivals && column(Float32Array);
    const ends = column(Uint32Array), laneOf = column(Uint32Array), fnOf = column(Uint32Array);
    const noteOf = has.has("note") ? column(Uint32Array) : null;
    const chunk = ++this.last, raised = new Map(head.raised);
    const kept = {ends, raised, nFetched: 0, keys: new Uint8Array(bytes, at), noteOf,
                  notes: head.notes};
    this.chunks.set(chunk, kept);
    const lanes = head.lanes.map((place) => this.lane(...place));
    for (const [host, worker, address, start, stop, nbytes, isRead] of head.disk)
      this.disk(host, worker, address).push({start, stop, nbytes, isRead, chunk});
    for (const disk of this.disks.values())
      if (disk.length > MAX_DISK) disk.splice(0, disk.length - MAX_DISK);
    const fns = head.functions.map((name) => this.fn(name));
    for (let row = 0; row < n; row++) {
      const fn = fns[fnOf[row]], lane = lanes[laneOf[row]];
      const stop = stops[row], waited = waits ? waits[row] / 1e6 : 0;
      const isFetched = arrivals !== null && (arrivals[row] > 0 || fetches[row] > 0);
      const i = lane.add(stop - durations[row] / 1e6 - waited, stop);
      lane.came[i] = isFetched ? stop - arrivals[row] / 1e6 : 0;
      lane.got[i] = isFetched ? stop - fetches[row] / 1e6 : 0;
      lane.waited[i] = waited;
      lane.fn[i] = fn;
      lane.chunk[i] = chunk;
      lane.row[i] = row;
      lane.failed[i] = 0;
      if (raised.size && raised.has(row)) lane.failed[i] = 1;
      if (isFetched) kept.nFetched += 1;
      this.functions[fn].n += 1;
    }
    this.total += n;
    this.nRaised += raised.size;
    this.nFetched += kept.nFetched;
    this.colour();
  }
  // Takes the attempts that run now, and what was spilled meanwhile, in place of those before.
  run(rows, spilled) {
    for (const lane of this.lanes.values()) lane.open = null;
    for (const one of this.functions) one.nOpen = 0;
    for (const [host, worker, address, thread, key, name, start] of rows) {
      const fn = this.fn(name);
      this.lane(host, worker, address, thread).open = {key, name, fn, start};
      this.functions[fn].nOpen += 1;
    }
    this.nOpen = rows.length;
    for (const disk of this.disks.values())
      if (disk.some((one) => one.chunk === Infinity))
        disk.splice(0, disk.length, ...disk.filter((one) => one.chunk !== Infinity));
    for (const [host, worker, address, start, stop, nbytes, isRead] of spilled)
      this.disk(host, worker, address).push({start, stop, nbytes, isRead, chunk: Infinity});
    this.dropLanes();
    this.colour();
  }
  dropLanes() {
    for (const [name, lane] of this.lanes)
      if (lane.from === lane.to && !lane.open) { this.lanes.delete(name); this.changed = true; }
  }
  trim(most) {
    while (this.total > most && this.chunks.size > 1) {
      const [[chunk, {raised, nFetched}]] = this.chunks;
      this.chunks.delete(chunk);
      this.nRaised -= raised.size;
      this.nFetched -= nFetched;
      for (const lane of this.lanes.values())
        lane.drop(chunk, (fn) => { this.functions[fn].n -= 1; this.total -= 1; });
      for (const disk of this.disks.values())
        while (disk.length && disk[0].chunk <= chunk) disk.shift();
    }
    this.dropLanes();
    this.forgetNames();
    this.colour();
  }
  // Numbers the functions anew once most have no attempts any more.
  forgetNames() {
    const shown = this.functions.filter((one) => one.n || one.nOpen);
    if (this.functions.length < 2 * shown.length + 100) return;
    const numbers = new Map(shown.map((one, number) => [one.name, number]));
    const others = this.functions.map((one) => numbers.get(one.name));
    for (const lane of this.lanes.values()) {
      for (let i = lane.from; i < lane.to; i++) lane.fn[i] = others[lane.fn[i]];
      if (lane.open) lane.open.fn = others[lane.open.fn];
    }
    Object.assign(this, {functions: shown, numbers});
  }
  // A name has the same colour in each browser, unless another one has it already.
  colour() {
    const taken = new Set();
    for (const one of this.functions) {
      if (!one.n && !one.nOpen) one.colour = OTHER;
      if (one.colour !== OTHER) taken.add(one.colour);
    }
    const most = this.functions.filter((one) => (one.n || one.nOpen) && one.colour === OTHER);
    for (const one of most.sort((a, b) => b.n - a.n)) {
      if (taken.size === OTHER) break;
      let hash = 0;
      for (const letter of one.name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
      for (one.colour = hash % OTHER; taken.has(one.colour);) one.colour = (one.colour + 1) % OTHER;
      taken.add(one.colour);
    }
  }
  get hasDisk() { return [...this.disks.values()].some((disk) => disk.length); }
  get oldest() {
    let oldest = Infinity;
    for (const lane of this.lanes.values())
      oldest = Math.min(oldest, lane.from < lane.to ? lane.start[lane.from] : Infinity,
                        lane.open ? lane.open.start : Infinity);
    return oldest;
  }
  about(lane, i) {
    const chunk = this.chunks.get(lane.chunk[i]), row = lane.row[i];
    const bytes = chunk && chunk.keys.subarray(row ? chunk.ends[row - 1] : 0, chunk.ends[row]);
    return {key: chunk ? new TextDecoder().decode(bytes) : "", raised: chunk?.raised.get(row),
            note: chunk?.noteOf && chunk.notes[chunk.noteOf[row]],
            name: this.functions[lane.fn[i]].name};
  }
}
"""

_PAINTER: Final = """\
// Draws lanes: a row of pixels for each, stretched to the height of a bar.
class Painter {
  // `nameOf` returns the name of a function by its number.
  constructor(canvas, curve, style, nameOf) {
    Object.assign(this, {canvas, curve, style, nameOf, rows: document.createElement("canvas")});
    this.mix();
    this.grow(1, 0);
  }
  // Takes the colours of the style, which are others on a dark page.
  mix() {
    const style = this.style;
    this.colours = [...Array(OTHER).keys(), "x"].map((i) => style.getPropertyValue(`--c${i}`));
    this.bad = style.getPropertyValue("--bad");
    // Diagonal lines, which no function has.
    const tile = document.createElement("canvas"), lines = tile.getContext("2d");
    Object.assign(tile, {width: 6, height: 6});
    lines.strokeStyle = style.getPropertyValue("--full");
    for (const x of [-6, 0, 6]) { lines.moveTo(x - 1, 7); lines.lineTo(x + 7, -1); }
    lines.stroke();
    this.disk = this.canvas.getContext("2d").createPattern(tile, "repeat");
    const rgb = (hex) => parseInt(hex.trim().replace(/#(..)(..)(..)/, "$3$2$1"), 16);
    this.pixels = this.colours.map(rgb);
    this.pixels.push(this.pixels[OTHER]);  // pale
    this.fetchPixel = (rgb(style.getPropertyValue("--soft")) | 0xff000000) >>> 0;
    // Names are written in what can be read on the colour.
    const light = (n) => 0.3 * (n & 255) + 0.59 * (n >> 8 & 255) + 0.11 * (n >> 16 & 255);
    this.inks = this.pixels.map((n) => light(n) > 118 ? "#10151c" : "#ffffff");
  }
  // The strip and the lanes fill the room that the window has for them, within limits.
  grow(nLanes, room) {
    const n = Math.max(nLanes, 1), within = (a, b, c) => Math.max(a, Math.min(b, Math.floor(c)));
    this.high = within(CURVE, MOST_CURVE, Math.min(room - n * ENOUGH_LANE, room * 0.35));
    this.lane = within(LEAST_LANE, MOST_LANE, (room - this.high) / n);
    this.line = within(3, 6, this.lane / 7);  // of fetched inputs
    this.bar = this.lane - this.line - 3;
  }
  fit(lanes) {
    const ratio = devicePixelRatio || 1, width = Math.round(this.canvas.clientWidth * ratio);
    const size = (canvas, height) => {
      const pixels = Math.round(height * ratio);
      if (canvas.width !== width || canvas.height !== pixels) {
        canvas.width = width;
        canvas.height = pixels;
        canvas.style.height = height + "px";
      }
    };
    size(this.canvas, Math.max(lanes.length, 1) * this.lane);
    size(this.curve, this.high);
    if (!this.image || this.image.width !== width || this.image.height !== 2 * lanes.length) {
      this.image = width && lanes.length ? new ImageData(width, 2 * lanes.length) : null;
      Object.assign(this.rows, {width, height: 2 * lanes.length});
      this.words = this.image && new Uint32Array(this.image.data.buffer);
      // For each colour, how many threads computed in each pixel.
      this.busy = Array.from({length: OTHER + 2}, () => new Float64Array(width));
    }
    return ratio;
  }
  // `lanes` has null where a row is empty; `colourOf` the colour of each function; `present` is
  // where bars end of what runs now.
  draw(lanes, left, shown, colourOf, nThreads, present) {
    const ratio = this.fit(lanes), context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const busy of this.busy) busy.fill(0);
    this.present = present;
    if (this.image) this.drawLanes(context, lanes, left, shown, colourOf, ratio);
    this.drawCurve(nThreads, ratio);
  }
  drawLanes(context, lanes, left, shown, colourOf, ratio) {
    const width = this.canvas.width, {lane: high, bar, line} = this;
    this.words.fill(0);
    const scale = width / shown, marks = [], names = high < TEXT_LANE ? null : [];
    lanes.forEach((lane, y) => {
      if (lane) this.paint(lane, y, left, scale, width, colourOf, marks, names);
    });
    this.rows.getContext("2d").putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    lanes.forEach((lane, y) => {
      if (!lane) return;
      const top = Math.round(y * high * ratio);
      this.drawDisk(context, lane.disk, y * high * ratio, left, scale, ratio);
      context.drawImage(this.rows, 0, 2 * y, width, 1, 0, top + ratio, width, bar * ratio);
      context.drawImage(this.rows, 0, 2 * y + 1, width, 1, 0, top + (bar + 2) * ratio, width,
                        line * ratio);
      if (lane.open) this.drawOpen(context, lane.open, top + ratio, left, scale, colourOf, ratio);
    });
    context.fillStyle = context.strokeStyle = this.bad;
    context.lineWidth = 2 * ratio;
    for (const [y, x, end] of marks) {
      const top = y * high * ratio + ratio;
      if (end - x > 6 * ratio)
        context.strokeRect(x + ratio, top + ratio, end - x - 2 * ratio, (bar - 2) * ratio);
      else context.fillRect(x - ratio, top - ratio, 3 * ratio, (bar + 2) * ratio);
    }
    if (names) this.write(context, names, ratio);
  }
  // Writes names of functions into bars that have room for some letters.
  write(context, names, ratio) {
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const widths = this.widths || (this.widths = new Map());
    for (const [y, a, b, name, colour] of names) {
      if (!widths.has(name)) widths.set(name, context.measureText(name).width);
      const room = b - a - 10 * ratio, wide = widths.get(name);
      const n = wide <= room ? name.length : Math.floor(name.length * room / wide) - 1;
      if (n < Math.min(name.length, 3)) continue;
      context.fillStyle = this.inks[colour];
      context.fillText(n < name.length ? name.slice(0, n) + "…" : name,
                       Math.round(a + 5 * ratio), (y * this.lane + 1 + this.bar / 2) * ratio);
    }
    if (widths.size > 1000) widths.clear();
  }
  // What was spilled or read back is behind the bars.
  drawDisk(context, disk, top, left, scale, ratio) {
    context.fillStyle = this.disk;
    let filled = 0;
    const right = left + this.canvas.width / scale;
    for (const {start, stop} of disk) {
      if (stop < left || start > right) continue;
      const a = Math.max((start - left) * scale, filled);
      const b = Math.min(Math.max((stop - left) * scale, a + 2 * ratio), this.canvas.width);
      if (b <= a || (stop - left) * scale < filled) continue;
      context.fillRect(a, top + ratio, b - a, (this.lane - 1) * ratio);
      filled = b;
    }
  }
  // A bar whose end is open: paler, with a line around all but that.
  drawOpen(context, {fn, start}, top, left, scale, colourOf, ratio) {
    const width = this.canvas.width, height = this.bar * ratio;
    const a = Math.max((start - left) * scale, -4);
    const b = Math.min((this.present - left) * scale, width);
    if (b <= a || a >= width) return;
    const colour = colourOf[fn], thin = 1.5 * ratio;
    context.fillStyle = context.strokeStyle = this.colours[Math.min(colour, OTHER)];
    context.globalAlpha = colour > OTHER ? 0.15 : 0.4;
    context.fillRect(a, top, b - a, height);
    context.globalAlpha = colour > OTHER ? 0.25 : 1;
    context.lineWidth = thin;
    context.beginPath();
    context.moveTo(b, top + thin / 2);
    context.lineTo(a + thin / 2, top + thin / 2);
    context.lineTo(a + thin / 2, top + height - thin / 2);
    context.lineTo(b, top + height - thin / 2);
    context.stroke();
    context.globalAlpha = 1;
    const busy = this.busy[colour];
    for (let x = Math.max(Math.round(a), 0); x < b; x++) busy[x] += 1;
  }
  paint(lane, y, left, scale, width, colourOf, marks, names) {
    const bars = 2 * y * width, fetched = bars + width, {words} = this, right = left +
      width / scale, sums = this.sums || (this.sums = new Float64Array(OTHER + 2));
    let pixel = -1, filled = 0, marked = -9;
    const flush = () => {
      if (pixel < 0) return;
      let best = 0, sum = 0;
      for (let c = 0; c < sums.length; c++) {
        sum += sums[c];
        if (sums[c] > sums[best]) best = c;
      }
      const alpha = Math.min(Math.max(sum, 0.3), 1) * (best > OTHER ? 0.25 : 1);
      words[bars + pixel] = (this.pixels[best] | Math.round(alpha * 255) << 24) >>> 0;
      sums.fill(0);
      pixel = -1;
    };
    for (let i = lane.after(left); i < lane.to; i++) {
      const start = lane.start[i], stop = lane.stop[i];
      if (lane.got[i]) {
        const from = Math.max(Math.floor((lane.came[i] - left) * scale), filled);
        filled = Math.min(Math.max(Math.ceil((lane.got[i] - left) * scale), from + 1), width);
        for (let x = from; x < filled; x++) words[fetched + x] = this.fetchPixel;
      }
      if (start >= right) {
        if (start > right + MARGIN_S) break;
        continue;
      }
      const a = Math.max((start - left) * scale, 0);
      const b = Math.min(Math.max((stop - left) * scale, a + 1e-6), width);
      const first = Math.min(Math.floor(a), width - 1), last = Math.min(Math.floor(b), width - 1);
      const colour = colourOf[lane.fn[i]], busy = this.busy[colour];
      const share = 1 - lane.waited[i] / Math.max(stop - start, 1e-9);
      if (first !== pixel) { flush(); pixel = first; }
      const here = Math.min(b, first + 1) - a;
      sums[colour] += here;
      busy[first] += here * share;
      if (last > first) {
        flush();
        if (names && last - first > LEAST_NAMED && colour <= OTHER)
          names.push([y, a, b, this.nameOf(lane.fn[i]), colour]);
        const word = (this.pixels[colour] | (colour > OTHER ? 0x40 : 0xff) << 24) >>> 0;
        words.fill(word, bars + first + 1, bars + last);
        for (let x = first + 1; x < last; x++) busy[x] += share;
        pixel = last;
        sums[colour] += b - last;
        busy[last] += (b - last) * share;
      }
      if (lane.failed[i] && (first > marked + 1 || b - a > 6)) {
        marks.push([y, a, b]);
        marked = first;
      }
    }
    flush();
  }
  drawCurve(nThreads, ratio) {
    const {curve} = this, context = curve.getContext("2d"), {width, height} = curve;
    // The functions stand on each other, in the order of their colours.
    const tops = [new Float64Array(width)], colours = [];
    this.busy.forEach((busy, colour) => {
      if (!busy.some((level) => level > 0)) return;
      tops.push(busy.map((level, x) => tops.at(-1)[x] + level));
      colours.push(colour);
    });
    this.most = tops.at(-1).reduce((most, level) => Math.max(most, level), nThreads);
    context.clearRect(0, 0, width, height);
    const yOf = (level) => height - level / Math.max(this.most, 1) * (height - 2 * ratio);
    colours.forEach((colour, i) => {
      context.fillStyle = this.colours[Math.min(colour, OTHER)];
      context.globalAlpha = colour > OTHER ? 0.15 : 0.7;
      context.beginPath();
      for (let x = 0; x < width; x++) {
        context.lineTo(x, yOf(tops[i + 1][x]));
        context.lineTo(x + 1, yOf(tops[i + 1][x]));
      }
      for (let x = width - 1; x >= 0; x--) {
        context.lineTo(x + 1, yOf(tops[i][x]));
        context.lineTo(x, yOf(tops[i][x]));
      }
      context.fill();
    });
    context.globalAlpha = 1;
    if (this.most <= nThreads) return;
    context.setLineDash([4 * ratio, 3 * ratio]);  // more seem busy than there are, see the docs
    context.strokeStyle = this.colours[OTHER];
    context.strokeRect(-1, yOf(nThreads), width + 2, height);
  }
}
"""

#: `Attempts` and `Painter`, and the numbers that they take.
SCRIPT: Final = "\n".join(
    [*(f"const {name} = {number};" for name, number in _NUMBERS.items()), _MODEL, _PAINTER]
)
