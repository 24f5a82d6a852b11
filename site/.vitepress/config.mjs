// The documentation site: the pages of ../docs, in the order in which a newcomer needs them. `make docs` builds it.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";

// The pages lie outside this folder, so what they are made of is named by its place.
const own = (name) => fileURLToPath(new URL(`../node_modules/${name}`, import.meta.url));

const pages = (text, items) => ({ text, items: items.map(([text, link]) => ({ text, link })) });

export default defineConfig({
  title: "Henge",
  description: "Storage that performs as promised, whatever the neighbours do",
  srcDir: "../docs",
  outDir: "../target/docs",
  cacheDir: "../target/docs-cache",
  cleanUrls: false,
  lastUpdated: false,
  markdown: { theme: { light: "github-light", dark: "github-dark" } },
  // A picture in the text of a style sheet or a page has no name by which its look is known.
  vite: { build: { assetsInlineLimit: 0 }, resolve: { alias: { "vue/server-renderer": own("vue/server-renderer"), vue: own("vue") } } },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Start", link: "/start" },
      { text: "Choose", link: "/choose" },
      { text: "Operate", link: "/operate" },
      { text: "Reference", link: "/reference" },
    ],
    sidebar: [
      pages("Start", [
        ["Your first disk", "/start"],
        ["Ten tasks", "/tasks"],
        ["Attach it: each client", "/clients"],
        ["NVMe over TCP", "/nvme"],
        ["Several nodes, one manager", "/cluster"],
        ["Words", "/words"],
      ]),
      pages("Choose", [
        ["Choose a scheduler", "/choose"],
        ["What holds on which device", "/promises"],
        ["Compared with others", "/compared"],
        ["Pools over NBD", "/backends"],
        ["Before a Ceph cluster", "/ceph"],
        ["Limits", "/limits"],
      ]),
      pages("Operate", [
        ["Measure, admit, repair", "/operate"],
        ["See who gets what", "/watching"],
        ["Who may do what", "/security"],
        ["What is durable", "/durability"],
        ["Upgrade", "/upgrade"],
        ["A parallel file system", "/vpfs"],
      ]),
      pages("Reference", [
        ["Configuration", "/reference"],
        ["Workloads and traces", "/workloads"],
      ]),
      pages("How it works", [
        ["Architecture", "/ARCHITECTURE"],
        ["DSFQ", "/papers/dsfq"],
        ["Stonehenge", "/papers/stonehenge"],
        ["Two-level control", "/papers/two-level"],
        ["Spatial locality", "/papers/locality"],
        ["mClock and pClock", "/papers/mclock-pclock"],
      ]),
    ],
  },
});
