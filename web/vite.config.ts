import { defineConfig } from "vite";

// One script and one style sheet, which the command line embeds into every page it writes.
export default defineConfig({
  build: {
    outDir: "../crates/cli/assets",
    emptyOutDir: true,
    rolldownOptions: {
      output: { postBanner: "/*! Contains Observable Plot and D3, ISC licence; web/THIRD_PARTY_LICENSES.txt lists all libraries. */" },
    },
    lib: { entry: "src/main.ts", name: "preflop", formats: ["iife"], fileName: () => "charts.js", cssFileName: "charts" },
  },
});
