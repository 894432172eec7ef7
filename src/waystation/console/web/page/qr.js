// @ts-check
/**
 * QR codes of bytes: versions 1 to 40, error correction L and M (MERK-QR). Spec: ISO/IEC 18004:2015, model 2, byte mode.
 * @module
 */

/** Check bytes per block, and blocks, by version 1 to 40 (table 9). */
const TABLES = {
  L: {
    checks: [7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28, 28, 28, 30, 30, 26, 28, 30, 30, 30, 30,
      30, 30, 30, 30, 30, 30, 30, 30, 30, 30],
    blocks: [1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8, 8, 9, 9, 10, 12, 12, 12, 13, 14, 15, 16, 17, 18, 19, 19, 20,
      21, 22, 24, 25],
    format: 1,
  },
  M: {
    checks: [10, 16, 26, 18, 24, 16, 18, 22, 22, 26, 30, 22, 22, 24, 24, 28, 28, 26, 26, 26, 26, 28, 28, 28, 28, 28, 28, 28, 28, 28,
      28, 28, 28, 28, 28, 28, 28, 28, 28, 28],
    blocks: [1, 1, 1, 2, 2, 4, 4, 4, 5, 5, 5, 8, 9, 9, 10, 10, 11, 13, 14, 16, 17, 17, 18, 20, 21, 23, 25, 26, 28, 29, 31, 33, 35, 37,
      38, 40, 43, 45, 47, 49],
    format: 0,
  },
};
const MASKS = [
  (x, y) => (x + y) % 2, (_x, y) => y % 2, (x) => x % 3, (x, y) => (x + y) % 3, (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2,
  (x, y) => ((x * y) % 2) + ((x * y) % 3), (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2, (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2,
];
const LOOK_ALIKES = ["10111010000", "00001011101"]; // what a reader could take for a corner

/**
 * Makes the code of a text, as small as it goes.
 * @param {string} text
 * @param {{ level?: "L" | "M", mask?: number }} [options] The best mask unless one is given.
 * @returns {{ size: number, rows: boolean[][], version: number, mask: number } | null} Dark is true; null when the text is too long.
 */
export function encodeQr(text, { level = "M", mask } = {}) {
  const bytes = new TextEncoder().encode(text);
  for (let version = 1; version <= 40; version += 1) {
    const data = dataBytes(bytes, version, level);
    if (data === null) continue;
    const grid = new Grid(version, level);
    grid.drawFunctions();
    grid.drawBits(interleave(data, version, level));
    const chosen = mask ?? grid.bestMask();
    grid.finish(chosen);
    return { size: grid.size, rows: grid.rows, version, mask: chosen };
  }
  return null;
}

/** All bits that a version holds, in bytes, before the function patterns' share. */
function rawBytes(version) {
  let bits = (16 * version + 128) * version + 64;
  if (version >= 2) {
    const aligns = Math.floor(version / 7) + 2;
    bits -= (25 * aligns - 10) * aligns - 55;
    if (version >= 7) bits -= 36;
  }
  return Math.floor(bits / 8);
}

/** The data with mode, length and padding; null when it does not fit. */
function dataBytes(bytes, version, level) {
  const { checks, blocks } = TABLES[level];
  const room = rawBytes(version) - checks[version - 1] * blocks[version - 1];
  const lengthBits = version < 10 ? 8 : 16;
  if (4 + lengthBits + 8 * bytes.length > 8 * room) return null;
  let bits = `0100${bytes.length.toString(2).padStart(lengthBits, "0")}`;
  for (const byte of bytes) bits += byte.toString(2).padStart(8, "0");
  bits += "0".repeat(Math.min(4, 8 * room - bits.length));
  bits = bits.padEnd(8 * Math.ceil(bits.length / 8), "0");
  const data = Array.from({ length: bits.length / 8 }, (_, index) => Number.parseInt(bits.slice(8 * index, 8 * index + 8), 2));
  for (let pad = 0xec; data.length < room; pad ^= 0xfd) data.push(pad);
  return data;
}

/** Blocks with their check bytes, byte by byte in turn. */
function interleave(data, version, level) {
  const checkCount = TABLES[level].checks[version - 1];
  const blockCount = TABLES[level].blocks[version - 1];
  const raw = rawBytes(version);
  const shortCount = blockCount - (raw % blockCount);
  const shortBytes = Math.floor(raw / blockCount) - checkCount;
  const divisor = generator(checkCount);
  const blocks = [];
  for (let index = 0, at = 0; index < blockCount; index += 1) {
    const own = data.slice(at, at + shortBytes + (index < shortCount ? 0 : 1));
    at += own.length;
    blocks.push({ own, checks: remainder(own, divisor) });
  }
  const whole = [];
  for (let at = 0; at <= shortBytes; at += 1) for (const { own } of blocks) if (at < own.length) whole.push(own[at]);
  for (let at = 0; at < checkCount; at += 1) for (const { checks } of blocks) whole.push(checks[at]);
  return whole;
}

/** Product in the field of 256 elements over x^8 + x^4 + x^3 + x^2 + 1. */
function times(left, right) {
  let product = 0;
  for (let bit = 7; bit >= 0; bit -= 1) {
    product = (product << 1) ^ ((product >>> 7) * 0x11d);
    product ^= ((right >>> bit) & 1) * left;
  }
  return product;
}

function generator(degree) {
  const result = [...new Array(degree - 1).fill(0), 1];
  for (let step = 0, root = 1; step < degree; step += 1, root = times(root, 2)) {
    for (let at = 0; at < degree; at += 1) result[at] = times(result[at], root) ^ (result[at + 1] ?? 0);
  }
  return result;
}

function remainder(data, divisor) {
  const result = new Array(divisor.length).fill(0);
  for (const byte of data) {
    const factor = byte ^ result.shift();
    result.push(0);
    divisor.forEach((coefficient, at) => { result[at] ^= times(coefficient, factor); });
  }
  return result;
}

class Grid {
  constructor(version, level) {
    Object.assign(this, { version, level });
    this.size = 4 * version + 17;
    this.rows = Array.from({ length: this.size }, () => new Array(this.size).fill(false));
    this.fixed = Array.from({ length: this.size }, () => new Array(this.size).fill(false));
  }

  /** Sets a module that no mask touches. */
  fix(x, y, dark) {
    if (x < 0 || y < 0 || x >= this.size || y >= this.size) return;
    this.rows[y][x] = Boolean(dark);
    this.fixed[y][x] = true;
  }

  drawFunctions() {
    const { size, version } = this;
    for (let at = 0; at < size; at += 1) {
      this.fix(6, at, at % 2 === 0);
      this.fix(at, 6, at % 2 === 0);
    }
    for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) this.square(x, y, 4, [1, 1, 0, 1, 0]);
    const places = this.alignments();
    const last = places.length - 1;
    places.forEach((x, column) => places.forEach((y, row) => {
      const isCorner = (column === 0 && (row === 0 || row === last)) || (column === last && row === 0);
      if (!isCorner) this.square(x, y, 2, [1, 0, 1]);
    }));
    this.drawFormat(0);
    if (version < 7) return;
    let rest = version;
    for (let step = 0; step < 12; step += 1) rest = (rest << 1) ^ ((rest >>> 11) * 0x1f25);
    const bits = (version << 12) | rest;
    for (let bit = 0; bit < 18; bit += 1) {
      const [near, far] = [Math.floor(bit / 3), size - 11 + (bit % 3)];
      this.fix(far, near, (bits >>> bit) & 1);
      this.fix(near, far, (bits >>> bit) & 1);
    }
  }

  square(x, y, reach, rings) {
    for (let dy = -reach; dy <= reach; dy += 1) {
      for (let dx = -reach; dx <= reach; dx += 1) this.fix(x + dx, y + dy, rings[Math.max(Math.abs(dx), Math.abs(dy))]);
    }
  }

  alignments() {
    if (this.version === 1) return [];
    const count = Math.floor(this.version / 7) + 2;
    const step = this.version === 32 ? 26 : 2 * Math.ceil((this.size - 13) / (2 * count - 2));
    return [6, ...Array.from({ length: count - 1 }, (_, index) => this.size - 7 - (count - 2 - index) * step)];
  }

  drawFormat(mask) {
    const data = (TABLES[this.level].format << 3) | mask;
    let rest = data;
    for (let step = 0; step < 10; step += 1) rest = (rest << 1) ^ ((rest >>> 9) * 0x537);
    const bits = ((data << 10) | rest) ^ 0x5412;
    const at = (/** @type {number} */ index) => (bits >>> index) & 1;
    for (let index = 0; index < 15; index += 1) {
      if (index < 6) this.fix(8, index, at(index));
      else if (index < 8) this.fix(8, index + 1, at(index));
      else this.fix(index === 8 ? 7 : 14 - index, 8, at(index));
      if (index < 8) this.fix(this.size - 1 - index, 8, at(index));
      else this.fix(8, this.size - 15 + index, at(index));
    }
    this.fix(8, this.size - 8, 1);
  }

  /** Fills in the bits in pairs of columns, up and down in turn, from the right. */
  drawBits(bytes) {
    let bit = 0;
    for (let right = this.size - 1; right >= 1; right -= 2) {
      if (right === 6) right = 5; // that column is the timing pattern's
      const isUpward = ((right + 1) & 2) === 0;
      for (let step = 0; step < this.size; step += 1) {
        const y = isUpward ? this.size - 1 - step : step;
        for (const x of [right, right - 1]) {
          if (this.fixed[y][x]) continue;
          this.rows[y][x] = Boolean((bytes[bit >>> 3] >>> (7 - (bit & 7))) & 1);
          bit += 1;
        }
      }
    }
  }

  finish(mask) {
    this.flip(mask);
    this.drawFormat(mask);
  }

  flip(mask) {
    for (let y = 0; y < this.size; y += 1) {
      for (let x = 0; x < this.size; x += 1) if (!this.fixed[y][x] && MASKS[mask](x, y) === 0) this.rows[y][x] = !this.rows[y][x];
    }
  }

  bestMask() {
    const penalties = MASKS.map((_, mask) => {
      this.finish(mask);
      const penalty = this.penalty();
      this.flip(mask);
      return penalty;
    });
    return penalties.indexOf(Math.min(...penalties));
  }

  /** How hard the code is to read (7.8.3). */
  penalty() {
    const lines = this.rows.map((row) => row.map(Number).join(""));
    const columns = lines.map((_, x) => lines.map((line) => line[x]).join(""));
    let sum = 0;
    for (const line of [...lines, ...columns]) {
      for (const [run] of line.matchAll(/0{5,}|1{5,}/g)) sum += run.length - 2;
      for (const shape of LOOK_ALIKES) for (let at = line.indexOf(shape); at >= 0; at = line.indexOf(shape, at + 1)) sum += 40;
    }
    for (let y = 1; y < this.size; y += 1) {
      for (let x = 1; x < this.size; x += 1) {
        const four = lines[y][x] + lines[y][x - 1] + lines[y - 1][x] + lines[y - 1][x - 1];
        if (four === "0000" || four === "1111") sum += 3;
      }
    }
    const dark = lines.join("").replaceAll("0", "").length;
    return sum + 10 * Math.floor(Math.abs((20 * dark) / (this.size * this.size) - 10));
  }
}
