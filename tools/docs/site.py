"""What mkdocs does besides building the pages of docs/ (see mkdocs.yml).

A warning makes the strict build fail.
"""

import logging
import posixpath
import re
from pathlib import Path

log = logging.getLogger("mkdocs.hooks.site")
ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/holdfast-go/holdfast"

CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
# Python-Markdown sees a list only after an empty line; GitHub also sees it directly after a paragraph.
LIST = re.compile(r"^(?![-*] |\d+\. |[ |>#]).+\n(?:[-*]|\d+\.) ", re.MULTILINE)
# What a browser would load from another host without a click.
LOADED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>|<link\b[^>]*\bhref=["']?(?:https?:)?//[^>]*>""")


def on_page_markdown(markdown, page, **_):
    """Link to files outside docs/ in the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def target(match):
        path = posixpath.normpath(posixpath.join("docs", folder, match[1]))
        if path.startswith("docs/"):
            return match[0]
        if not (ROOT / path).exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, match[1])
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{path}{match[2] or ''})"

    out, end = [], 0
    for code in CODE.finditer(markdown):
        out += [LINK.sub(target, markdown[end : code.start()]), code[0]]
        end = code.end()
    for match in LIST.finditer(CODE.sub("code", markdown)):
        log.warning("%s: an empty line is missing before the list at %r", page.file.src_uri, match[0])
    return "".join(out) + LINK.sub(target, markdown[end:])


def on_post_page(output, page, **_):
    """Refuse what a browser would load from another host."""
    for match in LOADED.finditer(output):
        log.warning("%s loads something from another host: %s", page.file.src_uri, match[0])
    return output
