// Pictures: a small PNG file of a screenshot, and a coarse comparison of two.

import { deflateSync } from "node:zlib";

/** The pixels of a side of a cell of the comparison. */
const CELL = 16;
/** By how much the mean luminance of a cell may differ, from 0 to 255: a word more or less in a line differs by less. */
const LUMINANCE_MAX = 24;
/** By how much the mean of a cell with a text differs from that of an empty one. */
const FULL_MIN = 4;
/** The colours of a small file. */
const COLOURS = 64;

/** Return the width, the height and the colours of a PNG file, four bytes for each pixel. The browser decodes it. */
async function decode(browser, png) {
  const found = await browser.executeAsyncScript(
    `const done = arguments[arguments.length - 1];
    const bytes = Uint8Array.from(atob(arguments[0]), (it) => it.charCodeAt(0));
    createImageBitmap(new Blob([bytes], { type: "image/png" })).then((image) => {
      const canvas = new OffscreenCanvas(image.width, image.height);
      const context = canvas.getContext("2d");
      context.drawImage(image, 0, 0);
      const { data } = context.getImageData(0, 0, image.width, image.height);
      let text = "";
      for (let at = 0; at < data.length; at += 8192) text += String.fromCharCode(...data.subarray(at, at + 8192));
      done([image.width, image.height, btoa(text)]);
    }, (error) => done(String(error)));`,
    png.toString("base64"),
  );
  if (!Array.isArray(found)) throw new Error(`a picture cannot be decoded: ${found}`);
  const [width, height, pixels] = found;
  return { width, height, pixels: Buffer.from(pixels, "base64") };
}

/** Return the mean luminance of each cell. */
function cells({ width, height, pixels }) {
  const means = [];
  for (let top = 0; top + CELL <= height; top += CELL) {
    for (let left = 0; left + CELL <= width; left += CELL) {
      let sum = 0;
      for (let y = top; y < top + CELL; y++) {
        for (let x = left; x < left + CELL; x++) {
          const at = 4 * (y * width + x);
          sum += 0.299 * pixels[at] + 0.587 * pixels[at + 1] + 0.114 * pixels[at + 2];
        }
      }
      means.push(sum / (CELL * CELL));
    }
  }
  return means;
}

/** Return the most frequent mean. */
function background(means) {
  const counts = new Map();
  for (const mean of means.map(Math.round)) counts.set(mean, (counts.get(mean) ?? 0) + 1);
  return [...counts].reduce((most, one) => (one[1] > most[1] ? one : most))[0];
}

/**
 * Return which share of the view differs between two PNG files: 0 to 1. Cells that are empty in both do not count: most of a page is
 * empty, with its style or without it. Pictures of other sizes differ wholly.
 */
export async function changed(browser, one, other) {
  const [a, b] = [await decode(browser, one), await decode(browser, other)];
  if (a.width !== b.width || a.height !== b.height) return 1;
  const [before, after] = [cells(a), cells(b)];
  const [empty, emptyAfter] = [background(before), background(after)];
  const isFull = (mean, at) => Math.abs(mean - empty) > FULL_MIN || Math.abs(after[at] - emptyAfter) > FULL_MIN;
  const isChanged = (mean, at) => Math.abs(mean - after[at]) > LUMINANCE_MAX;
  const full = before.filter(isFull).length;
  return Math.min(before.filter(isChanged).length / Math.max(full, 1), 1);
}

/** Return the most frequent colours of a picture, each at some distance from those before it. */
function palette({ pixels }) {
  const counts = new Map();
  for (let at = 0; at < pixels.length; at += 4) {
    const colour = (pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2];
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  const byCount = [...counts].sort((a, b) => b[1] - a[1]).map(([colour]) => colour);
  for (let apart = 32; ; apart /= 2) {
    const chosen = [];
    for (const colour of byCount) {
      if (chosen.length < COLOURS && chosen.every((other) => distance(colour, other) >= apart * apart)) chosen.push(colour);
    }
    if (chosen.length === COLOURS || apart < 1) return chosen;
  }
}

function distance(a, b) {
  const [red, green, blue] = [(a >> 16) - (b >> 16), ((a >> 8) & 255) - ((b >> 8) & 255), (a & 255) - (b & 255)];
  return red * red + green * green + blue * blue;
}

/** Return the checksum of a part of a PNG file. */
function checksum(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  }
  return (sum ^ 0xffffffff) >>> 0;
}

function chunk(kind, data) {
  const body = Buffer.concat([Buffer.from(kind), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(checksum(body));
  return Buffer.concat([length, body, sum]);
}

/** Return a screenshot as a small PNG file, with few colours. */
export async function small(browser, png) {
  const picture = await decode(browser, png);
  const { width, height, pixels } = picture;
  const colours = palette(picture);
  const nearest = new Map();
  const index = (colour) => {
    let found = nearest.get(colour);
    if (found === undefined) {
      found = 0;
      colours.forEach((other, at) => {
        if (distance(colour, other) < distance(colour, colours[found])) found = at;
      });
      nearest.set(colour, found);
    }
    return found;
  };
  const rows = Buffer.alloc(height * (width + 1));
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = 4 * (y * width + x);
      rows[y * (width + 1) + 1 + x] = index((pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2]);
    }
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  // Eight bits for each pixel, which is a place in the palette.
  head.set([8, 3, 0, 0, 0], 8);
  const listed = Buffer.from(colours.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  return Buffer.concat([
    Buffer.from("89504e470d0a1a0a", "hex"),
    chunk("IHDR", head),
    chunk("PLTE", listed),
    chunk("IDAT", deflateSync(rows, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}
