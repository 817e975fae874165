import { defineConfig } from "vite";

// One script and one style sheet, which the command line embeds into every page it writes.
export default defineConfig({
  build: {
    outDir: "../crates/cli/assets",
    emptyOutDir: true,
    lib: { entry: "src/main.ts", name: "preflop", formats: ["iife"], fileName: () => "charts.js", cssFileName: "charts" },
  },
});
