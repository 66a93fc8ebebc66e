"""What the interpreter tells of values of pandas and figures of matplotlib, beside their
text and pictures. repl.py loads this when one of them is imported.

Charts have the shape that E2B's clients parse: a type (line, scatter, bar, pie,
box_and_whisker, superchart, unknown), a title, labels and units of the axes, ticks
and scales of those with points, and elements."""
import json
import math
import re
import sys
import weakref

MAX_CELLS = 1_000_000     # of a DataFrame; its HTML shows a part of a larger one
MAX_POINTS = 200_000      # of a chart
UNIT = re.compile(r"\s\(([^()]*)\)|\[([^\[\]]*)\]")

boxes = weakref.WeakKeyDictionary()   # axes: what was drawn as boxes


# ---- values ------------------------------------------------------------------

def plain(value):
    """A value as JSON has it."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if getattr(value, "isoformat", None) is not None:
        text = value.isoformat()
        return None if text == "NaT" else text
    kind = getattr(value, "dtype", None)
    if kind is not None and getattr(value, "shape", None) == ():
        if kind.kind == "M":
            text = str(value.astype("datetime64[s]"))
            return None if text == "NaT" else text
        if kind.kind in "biuf":
            return plain(value.item())
    pandas = sys.modules.get("pandas")
    if pandas is not None and value is getattr(pandas, "NA", pandas):
        return None
    if type(value).__name__ == "Decimal":
        return plain(float(value))
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if getattr(value, "tolist", None) is not None:
        return plain(value.tolist())
    return str(value)


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def frame_data(frame):
    """The columns of a DataFrame as lists, or None."""
    if frame.size > MAX_CELLS:
        return None
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        names = ["%s.%d" % (name, n) if name in names[:n] else name for n, name in enumerate(names)]
    return dump({name: [plain(v) for v in frame.iloc[:, n].tolist()] for n, name in enumerate(names)})


# ---- charts ------------------------------------------------------------------

def watch_axes(axes_class):
    """Remembers the numbers of box plots, which their drawing only hints at."""
    original = axes_class.bxp

    def bxp(self, bxpstats, *args, **kwargs):
        stats = list(bxpstats)
        drawn = original(self, stats, *args, **kwargs)
        try:
            boxes.setdefault(self, []).extend(zip(stats, drawn["medians"]))
        except Exception:
            pass  # the chart is then one of lines
        return drawn

    bxp.__doc__ = original.__doc__
    bxp.__wrapped__ = original
    axes_class.bxp = bxp


def chart(figure):
    """The chart of a figure that has been drawn, as JSON, or None when there is none."""
    axes = [a for a in figure.get_axes() if a.has_data() and a.get_label() != "<colorbar>"]
    if not axes:
        return None
    if len(axes) == 1:
        return dump(one_chart(axes[0]))
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) is not None else None
    return dump({"type": "superchart", "title": title or None, "elements": [one_chart(a) for a in axes]})


def one_chart(axes):
    for found in (box_chart, pie_chart, bar_chart, scatter_chart, line_chart):
        made = found(axes)
        if made is not None:
            return made
    return {"type": "unknown", "title": axes.get_title() or None, "elements": []}


def head(axes, kind, swap=False):
    """What charts with two axes begin with. With swap the categories are on the other axis."""
    labels = [axes.get_xlabel() or None, axes.get_ylabel() or None]
    if swap:
        labels.reverse()
    units = []
    for label in labels:
        match = UNIT.search(label or "")
        units.append((match.group(1) or match.group(2)) if match else None)
    return {
        "type": kind, "title": axes.get_title() or None,
        "x_label": labels[0], "y_label": labels[1], "x_unit": units[0], "y_unit": units[1],
    }


def converter(axis):
    get = getattr(axis, "get_converter", None)
    return type(get() if get is not None else axis.converter).__name__


def scale(axis):
    name = converter(axis)
    if "Category" in name:
        return "categorical"
    if any(word in name for word in ("Date", "Period", "Time")):
        return "datetime"
    kind = axis.get_scale()
    if kind == "linear":
        ticks, labels = list(axis.get_ticklocs()), tick_labels(axis)
        if ticks and all(t == n for n, t in enumerate(ticks)) and not any(is_number(text) for text in labels):
            return "categorical"
    return kind


def is_number(text):
    try:
        float(text.replace("\N{MINUS SIGN}", "-") or 0)
        return True
    except ValueError:
        return False


def tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def place(axis, value):
    """A place on an axis: a date, a category or a number."""
    kind = scale(axis)
    if kind == "datetime" and "Period" not in converter(axis):
        try:
            from matplotlib.dates import num2date
            return num2date(value).replace(tzinfo=None).isoformat()
        except Exception:
            pass
    if kind == "categorical":
        for tick, text in zip(axis.get_ticklocs(), tick_labels(axis)):
            if tick == value:
                return text
    return plain(value)


def with_ticks(made, axes):
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        made[name + "_ticks"] = [place(axis, t) if scale(axis) == "datetime" else plain(t) for t in axis.get_ticklocs()]
        made[name + "_tick_labels"] = tick_labels(axis)
        made[name + "_scale"] = scale(axis)
    return made


def named(label, word, number):
    text = str(label)
    return "%s %d" % (word, number) if not text or text.startswith("_") else text


def line_chart(axes):
    # Lines across the axes, such as those of axhline, are no data.
    lines = [line for line in axes.get_lines() if line.get_transform() == axes.transData]
    if not lines or sum(len(line.get_xdata()) for line in lines) > MAX_POINTS:
        return None
    made = with_ticks(head(axes, "line"), axes)
    made["elements"] = [
        {"label": named(line.get_label(), "Line", n), "points": [[plain(x), plain(y)] for x, y in zip(line.get_xdata(), line.get_ydata())]}
        for n, line in enumerate(lines)]
    return made


def scatter_chart(axes):
    paths = [c for c in axes.collections if type(c).__name__ == "PathCollection"]
    if not paths or sum(len(c.get_offsets()) for c in paths) > MAX_POINTS:
        return None
    made = with_ticks(head(axes, "scatter"), axes)
    special = {axis: scale(axis) in ("datetime", "categorical") for axis in (axes.xaxis, axes.yaxis)}

    def at(axis, value):
        return place(axis, value) if special[axis] else plain(value)

    made["elements"] = [
        {"label": named(c.get_label(), "Points", n), "points": [[at(axes.xaxis, x), at(axes.yaxis, y)] for x, y in c.get_offsets().tolist()]}
        for n, c in enumerate(paths)]
    return made


def bar_chart(axes):
    groups = [c for c in axes.containers if type(c).__name__ == "BarContainer" and len(c)]
    if not groups or sum(len(c) for c in groups) > MAX_POINTS:
        return None
    across = getattr(groups[0], "orientation", None) == "horizontal"
    axis = axes.yaxis if across else axes.xaxis
    ticks, texts = list(axis.get_ticklocs()), tick_labels(axis)
    fixed = type(axis.get_major_locator()).__name__ in ("FixedLocator", "StrCategoryLocator")
    made = head(axes, "bar", swap=across)
    made["elements"] = []
    for n, group in enumerate(groups):
        for k, bar in enumerate(group):
            middle = bar.get_y() + bar.get_height() / 2 if across else bar.get_x() + bar.get_width() / 2
            if fixed and len(ticks) == len(group):
                label = texts[k]   # also of bars beside each other, around their tick
            else:
                label = next((text for tick, text in zip(ticks, texts) if abs(tick - middle) < 1e-9), None)
            if not label:
                where = place(axis, float(middle))
                label = "%g" % where if isinstance(where, float) else str(where)
            made["elements"].append({
                "label": label, "group": named(group.get_label(), "Group", n),
                "value": plain(bar.get_width() if across else bar.get_height()),
            })
    return made


def pie_chart(axes):
    wedges = [p for p in axes.patches if type(p).__name__ == "Wedge"]
    if not wedges:
        return None
    return {
        "type": "pie", "title": axes.get_title() or None,
        "elements": [{
            "label": named(w.get_label(), "Wedge", n),
            "angle": plain(round(abs(float(w.theta2) - float(w.theta1)), 5)), "radius": plain(float(w.r)),
        } for n, w in enumerate(wedges)],
    }


def box_chart(axes):
    found = [(stats, median) for stats, median in boxes.get(axes, ()) if median.axes is axes]
    if not found:
        return None
    x, y = found[0][1].get_xdata(), found[0][1].get_ydata()
    across = len(x) > 1 and x[0] == x[-1]
    axis = axes.yaxis if across else axes.xaxis
    texts = list(zip(axis.get_ticklocs(), tick_labels(axis)))
    made = head(axes, "box_and_whisker", swap=across)
    made["elements"] = []
    for n, (stats, median) in enumerate(found):
        line = median.get_ydata() if across else median.get_xdata()
        middle = (float(line[0]) + float(line[-1])) / 2
        label = next((text for tick, text in texts if abs(tick - middle) < 1e-9 and text), None)
        made["elements"].append({
            "label": label or str(stats.get("label", n + 1)),
            "min": plain(stats["whislo"]), "first_quartile": plain(stats["q1"]), "median": plain(stats["med"]),
            "third_quartile": plain(stats["q3"]), "max": plain(stats["whishi"]),
            "outliers": [plain(v) for v in stats.get("fliers", ())],
        })
    return made
