// The core in a thread of its own, so that sliders stay smooth while it computes.

interface Core { memory: WebAssembly.Memory; preflop_room(length: number): number; preflop_ask(): number; preflop_answer(): number; }

const start = async (packed: ArrayBuffer): Promise<Core> => {
  const plain = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")), { headers: { "Content-Type": "application/wasm" } });
  const { instance } = await WebAssembly.instantiateStreaming(plain, {});
  return instance.exports as unknown as Core;
};

let core: Promise<Core> | null = null;

addEventListener("message", async ({ data }: MessageEvent<{ packed?: ArrayBuffer; id?: number; question?: string }>) => {
  if (data.packed) { core = start(data.packed); return; }
  try {
    if (!core) throw new Error("the core was not sent");
    const c = await core;
    const bytes = new TextEncoder().encode(data.question);
    const room = c.preflop_room(bytes.length);
    new Uint8Array(c.memory.buffer, room, bytes.length).set(bytes);
    const length = c.preflop_ask();
    const answer = new TextDecoder().decode(new Uint8Array(c.memory.buffer, c.preflop_answer(), length));
    postMessage({ id: data.id, answer });
  } catch (error) {
    // After a trap the core's memory cannot be trusted.
    core = null;
    postMessage({ id: data.id, failed: String(error) });
  }
});
