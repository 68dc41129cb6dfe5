"""The style sheets of panels and pictures.

They follow JupyterLab's theme. Charts have inks for both themes. Pictures by matplotlib are drawn once, for the light
theme; the dark theme inverts their lightness and keeps their hues. A panel without its kernel shows a sentence in place
of its controls.
"""

from typing import Any

_ARROW = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='18' height='18' viewBox='0 0 18 18'%3E"
    "%3Cpath fill='%23ddd' d='M5.2 6.9 9 10.7l3.8-3.8 1.2 1.1-5 5-5-5z'/%3E%3C/svg%3E"
)
_DARK = "[data-jp-theme-light='false'] .minips-panel"
_INVERTED = "filter: invert(0.93) hue-rotate(180deg)"

INKS = {
    "a": ("#0072b2", "#56b4e9"),
    "b": ("#c14f00", "#e6a15c"),
    "c": ("#007a59", "#4cc9a4"),
    "d": ("#a8527f", "#e3a6c7"),
    "dim": ("#57606a", "#9aa4ae"),
    "text": ("#1f2328", "#e6edf3"),
    "paper": ("#ffffff", "#111418"),
}
"""Maps an ink to its colours in the light theme and in the dark one, those of ``common.css``. Each has a contrast of at
least 4.5 with its ground.
"""
_INKED = "\n".join(
    f".minips-picture .minips-ink-{name} {{color: light-dark({light}, {dark})}}" for name, (light, dark) in INKS.items()
)

WIDE: dict[str, Any] = {"layout": {"width": "auto"}, "style": {"description_width": "initial"}}
"""Options of a control that is as wide as its texts."""
DPI = 110
"""Pixels of a picture per inch of its figure."""
WIDE_IN, NARROW_IN = 7.6, 3.5
"""A figure's width for wide pages and for narrow pages, on which a wide figure's letters would be too small."""
NARROW_PX = 640
"""Narrower panels show the narrow form of their pictures."""

_MARKS = ".minips-still :is([fill^='#'], [stroke^='#'])"
FIGURE = f"""<style>
[data-jp-theme-light] .minips-figure {{background: none !important}}
[data-jp-theme-light='false'] :is(.minips-figure, {_MARKS}) {{{_INVERTED}}}
.minips-forms {{container-type: inline-size}}
.minips-forms > img + img {{display: none; max-width: min({NARROW_IN * DPI:.0f}px, 100%)}}
@container (max-width: {NARROW_PX}px) {{
    .minips-forms > img {{display: none}}
    .minips-forms > img + img {{display: inline}}
}}
</style>"""
"""The style sheet of a picture that is a cell's output, perhaps with a narrow form. Of a view's still, it inverts the
marks: its texts have the colour of the page's text.
"""

STYLE = f"""<style>
.minips-panel .widget-label, .minips-panel .widget-label-basic {{
    white-space: normal; line-height: 1.05; align-content: center}}
.minips-panel .widget-label-basic {{line-height: 1.3}}
.minips-panel .widget-html-content {{line-height: 1.4; min-width: 0; max-width: 100%}}
.minips-panel .widget-radio > :is(label, .widget-label).widget-label {{
    display: block; height: auto; line-height: 1.4; padding: 4px 0 2px; min-height: 0}}
.minips-panel .widget-radio-box.widget-radio-box {{margin-bottom: 0; height: auto}}
.minips-panel .widget-radio-box label {{display: flex; height: auto; line-height: 1.4; margin-bottom: 3px}}
.minips-panel .widget-radio-box label > input {{flex: none; order: -1; height: 1.4em}}
.minips-panel .minips-told, .minips-panel .minips-bare > .widget-label,
.minips-panel .minips-bare .widget-label-basic > span {{
    position: absolute; width: 1px !important; height: 1px; overflow: hidden; clip-path: inset(50%)}}
.minips-panel .minips-title {{font-size: 15px}}
.minips-panel .minips-form {{display: block; columns: 340px; column-gap: 20px; max-width: 1100px; margin: 4px 0}}
.minips-panel .minips-form > * {{break-inside: avoid}}
.minips-panel .minips-form .minips-number > input {{flex: 0 0 64px}}
.minips-panel .minips-form .widget-dropdown > select {{flex: 0 1 auto; min-width: 0}}
.minips-panel .minips-form .minips-check {{margin-left: 156px}}
.minips-panel progress {{width: 100%; height: 14px; accent-color: light-dark({INKS["a"][0]}, {INKS["a"][1]})}}
.minips-panel .minips-check > .widget-checkbox {{flex: none; width: 24px; min-width: 0; position: relative}}
.minips-panel .minips-check .widget-label-basic > span {{left: 0}}
.minips-panel .minips-check .widget-label-basic {{align-self: center}}
.minips-panel :is(.jupyter-widget-Collapse-contents, .widget-tab-contents) {{padding: 4px 6px}}
.minips-panel .minips-slim {{flex-wrap: wrap; height: auto}}
.minips-panel .minips-slim > .widget-label {{height: auto; max-width: 100%; overflow: visible; align-self: center}}
.minips-panel .minips-slim > :is(input, select) {{flex: 1 1 56px; min-width: 0}}
.minips-panel .minips-row {{padding-top: 5px}}
.minips-panel .minips-A {{color: #0072b2}}
.minips-panel .minips-B {{color: #b34a00}}
{_DARK} .minips-A {{color: #56b4e9}}
{_DARK} .minips-B {{color: #e6a15c}}
.minips-panel .minips-small, .minips-panel .minips-small > .widget-html-content {{
    min-height: 0; margin-top: 1px; margin-bottom: 0; line-height: 20px; font-size: 12px}}
.minips-panel .minips-fold {{align-self: flex-start; background: none; text-align: left; padding: 0 6px}}
.minips-panel .minips-fold::before {{content: "▸" / ""; display: inline-block; width: 1.2em}}
.minips-panel .minips-fold.mod-active {{box-shadow: none; background: none}}
.minips-panel .minips-fold.mod-active::before {{content: "▾" / ""}}
.minips-panel .minips-code pre {{
    margin: 4px 0 8px; white-space: pre-wrap; line-height: 1.35; font-size: 12px; overflow-wrap: anywhere}}
.minips-panel .minips-copy {{display: none}}
.minips-panel.minips-live .minips-copy {{
    display: inline-block; margin-left: 8px; padding: 1px 10px; font: inherit; font-size: 12px; cursor: pointer;
    color: inherit; background: var(--jp-layout-color2); border: 1px solid var(--jp-border-color1); border-radius: 3px}}
.minips-panel .minips-differs {{background: color-mix(in srgb, #f0b400 18%, transparent)}}
.minips-panel .minips-alert {{
    border-left: 4px solid #C14F00; padding: 4px 8px; overflow-wrap: anywhere; line-height: 1.35}}
.minips-panel .minips-wrong {{
    display: block; border-left: 4px solid #C14F00; margin: 0 4px 4px; padding: 0 6px; font-size: 12px;
    line-height: 1.25; overflow-wrap: anywhere}}
.minips-panel .minips-table {{overflow-x: auto}}
.minips-panel .minips-table :is(th, td) {{
    text-align: left; padding: 1px 10px 1px 0; vertical-align: top; overflow-wrap: break-word}}
.minips-panel details :is(th, td) {{text-align: left; padding: 1px 10px 1px 0; vertical-align: top; font-size: 12px}}
.minips-panel .jupyter-widget-tab > .lm-TabBar .lm-TabBar-content {{flex-wrap: wrap}}
.minips-panel .jupyter-widget-tab > .lm-TabBar .lm-TabBar-tab {{
    flex: 0 0 auto; padding: 0 8px; color: var(--jp-ui-font-color1)}}
.minips-panel.minips-panel :is(select, input, .widget-input):disabled {{opacity: 1}}
.minips-panel summary {{cursor: pointer}}
.minips-panel :is(button, .jupyter-button):disabled {{
    opacity: 1; color: var(--jp-ui-font-color1); background: var(--jp-layout-color3); font-style: italic}}
.minips-panel a {{color: var(--jp-content-link-color); text-decoration: underline}}
.minips-panel .minips-picture {{container-type: inline-size; width: 100%}}
.minips-panel .minips-picture img {{width: 100%; max-width: 480px; margin: 0}}
.minips-panel .minips-picture svg {{height: auto}}
.minips-panel .minips-picture .minips-wide {{max-width: min(760px, 100%)}}
.minips-panel .minips-picture .minips-narrow {{display: none; max-width: min({NARROW_IN * DPI:.0f}px, 100%)}}
@container (max-width: {NARROW_PX}px) {{
    .minips-panel .minips-picture .minips-wide {{display: none}}
    .minips-panel .minips-picture .minips-narrow {{display: block}}
}}
.minips-picture {{color-scheme: light dark}}
[data-jp-theme-light='true'] .minips-picture {{color-scheme: light}}
[data-jp-theme-light='false'] .minips-picture {{color-scheme: dark}}
{_INKED}
{_DARK} {{--jp-widgets-dropdown-arrow: url("{_ARROW}")}}
{_DARK} .minips-picture img {{{_INVERTED}}}
.minips-panel.jupyter-widgets-disconnected > *, .minips-panel .jupyter-widgets-disconnected::before {{display: none}}
.minips-panel.jupyter-widgets-disconnected::before {{
    content: "The kernel was restarted or ended. Run the cells above, then this one.";
    font: inherit; color: inherit; padding: 4px}}
</style>"""
