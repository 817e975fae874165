// The core in a thread of its own, so that sliders stay smooth while it computes.

interface Core { memory: WebAssembly.Memory; preflop_room(length: number): number; preflop_ask(): number; preflop_ask_about(): number; preflop_answer(): number; }

const start = async (packed: ArrayBuffer): Promise<Core> => {
  const plain = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")), { headers: { "Content-Type": "application/wasm" } });
  const { instance } = await WebAssembly.instantiateStreaming(plain, {});
  return instance.exports as unknown as Core;
};

let core: Promise<Core> | null = null;

addEventListener("message", async ({ data }: MessageEvent<{ packed?: ArrayBuffer; id?: number; question?: string; file?: File }>) => {
  if (data.packed) { core = start(data.packed); return; }
  try {
    if (!core) throw new Error("the core was not sent");
    const c = await core;
    // A file follows the line of its question; it is read here, so that the page stays smooth.
    const line = new TextEncoder().encode(data.file ? `${data.question}\n` : data.question);
    const file = data.file ? new Uint8Array(await data.file.arrayBuffer()) : new Uint8Array();
    const room = c.preflop_room(line.length + file.length);
    const into = new Uint8Array(c.memory.buffer, room, line.length + file.length);
    into.set(line);
    into.set(file, line.length);
    const length = data.file ? c.preflop_ask_about() : c.preflop_ask();
    const answer = new TextDecoder().decode(new Uint8Array(c.memory.buffer, c.preflop_answer(), length));
    postMessage({ id: data.id, answer });
  } catch (error) {
    // After a trap the core's memory cannot be trusted.
    core = null;
    postMessage({ id: data.id, failed: String(error) });
  }
});
