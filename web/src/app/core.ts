// The core inside the page: the same questions and answers as a server's, without one.
import type { Question } from "./ask";
import CoreWorker from "./core-worker?worker&inline";

type Reply = { id: number; answer?: string; failed?: string };

/** The module as it was written into the page: base64 of a gzip stream. */
async function packed(): Promise<ArrayBuffer> {
  const text = document.getElementById("core")?.textContent?.trim() ?? "";
  // Newer browsers decode it at once; through an address it takes ten times as long.
  const { fromBase64 } = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };
  if (fromBase64) return fromBase64.call(Uint8Array, text).buffer;
  return (await fetch(`data:application/octet-stream;base64,${text}`)).arrayBuffer();
}

const waiting = new Map<number, (reply: Reply) => void>();
let worker: Promise<Worker> | null = null;
let last = 0;

async function start(): Promise<Worker> {
  const made = new CoreWorker();
  made.addEventListener("message", ({ data }: MessageEvent<Reply>) => { waiting.get(data.id)?.(data); waiting.delete(data.id); });
  const bytes = await packed();
  made.postMessage({ packed: bytes }, [bytes]);
  return made;
}

/** Scripts in this page may ask too: `preflop.ask({ask: "predict", ..})` gives the answer as JSON text. */
export function offer(): void { (globalThis as { preflop?: object }).preflop = { ask: askCore }; }

/** Asks the core, about a file if one is given; gives its answer as the text it wrote. */
export async function askCore(question: Question, file?: File): Promise<string> {
  worker ??= start();
  const to = await worker;
  const id = ++last;
  const reply = await new Promise<Reply>((resolve) => { waiting.set(id, resolve); to.postMessage({ id, question: JSON.stringify(question), file }); });
  if (reply.answer === undefined) {
    to.terminate();
    worker = null;
    throw new Error(`the core failed: ${reply.failed ?? "no reason"}`);
  }
  return reply.answer;
}
