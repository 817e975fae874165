import { defineConfig } from "vite";

// The application: one document, one script and one style sheet, which the server embeds. Names without hashes keep
// the repository's copy at its place; browsers ask whether it changed.
export default defineConfig({
  build: {
    outDir: "../crates/server/assets",
    emptyOutDir: true,
    modulePreload: false,
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        entryFileNames: "app.js", chunkFileNames: "[name].js", assetFileNames: "app[extname]",
        postBanner: "/*! Contains Observable Plot and D3, ISC licence; web/THIRD_PARTY_LICENSES.txt lists all libraries. */",
      },
    },
  },
});
