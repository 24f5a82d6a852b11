// VitePress's own theme, and pictures that come in two looks.
import Theme from "vitepress/theme";
import "./looks.css";

export default Theme;
