// Files: dropped anywhere on the page, or chosen. A model becomes the model of every page; a recording opens Profile.
import type { ListedModel, ModelFileAnswer } from "./answers";
import { askAbout } from "./ask";

type Dropped = ListedModel & { any_batch: boolean };

const models: Dropped[] = [];
let recording: File | null = null;

/** Models that were dropped since the page was opened, the latest first. */
export const dropped = (): Dropped[] => models;

/** The recording that was dropped last, once. */
export function takeRecording(): File | null {
  const file = recording;
  recording = null;
  return file;
}

/** Is this the name of a file that the other side keeps? */
export const isFile = (model: string): boolean => model.startsWith("file:");
/** The file's own name. */
export const plainName = (model: string): string => (isFile(model) ? model.slice(model.indexOf("/") + 1) : model);

// What a file is shows in its first part; configurations are shorter than that.
const HEAD = 1 << 20;

async function isModel(file: File): Promise<boolean> {
  if (/\.(onnx|pt2)$/i.test(file.name)) return true;
  if (!/\.json$/i.test(file.name)) return false;
  const head = await file.slice(0, HEAD).text();
  return !head.includes("\"traceEvents\"") && /"model_type"|"preflop-capture"|"layers"/.test(head);
}

/** Takes a file; gives the address of the page that shows it. */
export async function take(file: File, shared: (model: string) => string): Promise<string> {
  if (!(await isModel(file))) {
    recording = file;
    return "/profile";
  }
  const kept = await askAbout<ModelFileAnswer>(file, { ask: "model" });
  const known = models.findIndex((m) => m.name === kept.model);
  if (known >= 0) models.splice(known, 1);
  models.unshift({
    name: kept.model, title: kept.title, family: "your files", input: kept.kind, default_batch: kept.batch, default_seq: kept.seq, max_seq: null,
    parameters: kept.parameters, optimizer: "as usual", generates: kept.generates, any_batch: kept.any_batch,
  });
  return `/predict${shared(kept.model)}`;
}
