import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// `npm run dev` shows the page of a node that runs here: HENGE=http://127.0.0.1:8080 npm run dev
export default defineConfig({
  plugins: [svelte()],
  build: { outDir: 'dist', target: 'es2021', modulePreload: false, reportCompressedSize: true, assetsInlineLimit: 0 },
  server: { proxy: { '/api': process.env.HENGE ?? 'http://127.0.0.1:8080' } },
});
