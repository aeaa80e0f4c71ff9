"""What the site has besides the pages in `docs`: the reference, pictures, pages of the repository, and `llms.txt`.

The pages in `docs` are also read in the repository.  So their links lead to files beside them, and the site changes
these to where they are on the web.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files

from fsm_agent.call import ROWS

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OF_THE_REPOSITORY = {"CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}
BOOSTS = {"concepts.md": 3, "changes.md": 0.3}  # in the search: what a word means comes before its history
LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|#|mailto:)([^\s)#]+)")
DEFINITION = re.compile(r"^(\[[^\]]+\]: )(?!https?:|#)([^\s#]+)", re.MULTILINE)
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ROWS_HERE = re.compile(r"<!-- rows:.*?-->")
CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
WITH_VERBS = {"Agent", "Conversation", "Flow", "Orchestrator"}  # which they share, by inheritance
PACKAGES = [  # in the order of the reference
    *("agents", "prompts", "messages", "functions", "call", "context", "runtime", "clients", "providers", "store"),
    *("workers", "flows", "flows.orchestrator", "mcp", "web", "diagrams", "errors", "testing", "cli"),
]
REFERENCE = """# Reference

Import what most programs need from the top: `from fsm_agent import Agent`. Everything else is in its room, such as
`from fsm_agent.context import keep_last`. Other names are internal, and may change with any version.
"""
TITLES = {"flows.orchestrator": "Orchestrator", "mcp": "MCP", "cli": "Command line"}


EXAMPLES = {  # the pages that are made from files, by the file
    path.relative_to(ROOT).as_posix(): f"recipes/{path.stem.replace('_', '-')}.md"
    for path in [
        *sorted((ROOT / "examples" / "recipes").glob("*.py")),
        *(ROOT / "examples" / f"{name}.py" for name in ("coder", "documents", "nightly", "chat_completions")),
    ]
}


def example_page(file: str) -> str:
    """Return the page of an example: its docstring, its picture if it has one, and its code."""
    text = (ROOT / file).read_text("utf-8")
    about, code = text.removeprefix('"""').split('"""\n', 1)
    title, _, about = about.partition("\n")
    picture = Path(EXAMPLES[file]).with_suffix(".svg")
    shown = f"![The picture of {title}]({picture.name})\n\n" if (ROOT / "docs" / picture).exists() else ""
    address = "../" * 2 + file
    return f"# {title.rstrip('.')}\n{about}\n{shown}[`{file}`]({address}):\n\n```python\n{code.strip()}\n```\n"


def public_names(package: str) -> list[str]:
    """Return the names of a package, as a reader looks for them."""
    return sorted(import_module(package).__all__, key=str.lower)


def reference_page(package: str) -> str:
    """Return the page of a sub-package: its docstring, and an entry for each public name."""
    title = TITLES.get(package, package.capitalize())
    about = (import_module(f"fsm_agent.{package}").__doc__ or "").strip()
    entries = "\n\n".join(map(_entry, [f"fsm_agent.{package}.{name}" for name in public_names(f"fsm_agent.{package}")]))
    return f"---\nsearch:\n  boost: 0.7\n---\n\n# {title}: `fsm_agent.{package}`\n\n{about}\n\n{entries}\n"


def _entry(name: str) -> str:
    verbs = "\n    options:\n      inherited_members: true" if name.rpartition(".")[2] in WITH_VERBS else ""
    return f"::: {name}{verbs}"


def reference_index() -> str:
    """Return the page that says where each name is."""
    homes = {name: package for package in reversed(PACKAGES) for name in public_names(f"fsm_agent.{package}")}

    def row(package: str) -> str:
        own = package.removeprefix("fsm_agent").removeprefix(".")
        at = {name: own or homes.get(name, "") for name in public_names(package)}
        names = [f"[`{name}`]({home}.md#fsm_agent.{home}.{name})" for name, home in at.items() if home]
        return f"| {f'[`{package}`]({own}.md)' if own else f'`{package}`'} | {' '.join(names)} |"

    rows = [row(package) for package in ["fsm_agent", *[f"fsm_agent.{name}" for name in PACKAGES]]]
    return "\n".join([REFERENCE, "| from | names |", "|---|---|", *rows, ""])


def rows_table() -> str:
    """Return the table of an agent call: what leads from which states where, and if what."""

    def names(states: object) -> str:
        return ", ".join(f"`{state}`" for state in (states if isinstance(states, tuple) else (states,)))

    lines = []
    for trigger, sources, to, guard, _ in ROWS:
        where, condition = names(to) if to else "stays", f"`{guard.__name__}`" if guard else ""
        lines.append(f"| `{trigger}` | {names(sources)} | {where} | {condition} |")
    return "\n".join(["| trigger | from | to | if |", "|---|---|---|---|", *lines])


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the reference into the navigation."""
    pages: list[Any] = ["reference/index.md"]
    pages += [{TITLES.get(name, name.capitalize()): f"reference/{name}.md"} for name in PACKAGES]
    config.nav = [{"Reference": pages} if "Reference" in entry else entry for entry in config.nav or []]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what is not in `docs`; what is only for the repository goes."""
    made = {f"reference/{name}.md": reference_page(name) for name in PACKAGES}
    made["reference/index.md"] = reference_index()
    made |= {page: example_page(file) for file, page in EXAMPLES.items()}
    for name, page in OF_THE_REPOSITORY.items():
        made[page] = (ROOT / name).read_text("utf-8")
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    for picture in (ROOT / "diagrams").glob("*.svg"):
        files.append(File.generated(config, f"diagrams/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into addresses, and what is written in Mermaid into its picture."""
    path = page.file.src_uri
    if path in BOOSTS:
        page.meta["search"] = {"boost": BOOSTS[path]}
    markdown = ROWS_HERE.sub(lambda _: rows_table(), markdown)
    stem = posixpath.basename(path).removesuffix(".md")
    for block in MERMAID.findall(markdown):
        markdown = markdown.replace(f"```mermaid\n{block}```", f"![The picture of {stem}]({stem}.svg)", 1)
    parts = CODE.split(markdown)
    for number in range(0, len(parts), 2):
        for pattern in (LINK, DEFINITION):
            parts[number] = pattern.sub(lambda link: link[1] + _address(link[2], path, config, files), parts[number])
    return "".join(parts)


def _address(link: str, page: str, config: MkDocsConfig, files: Files) -> str:
    """Return the link of a page as it is right in the site."""
    of_repository = {new: old for old, new in OF_THE_REPOSITORY.items()}
    folder = "" if page in of_repository else posixpath.dirname(f"docs/{page}")
    target = posixpath.normpath(posixpath.join(folder, link))
    own = posixpath.dirname(page) or "."
    if target in EXAMPLES and EXAMPLES[target] != page:
        return posixpath.relpath(EXAMPLES[target], own)
    if target in OF_THE_REPOSITORY:
        return posixpath.relpath(OF_THE_REPOSITORY[target], own)
    if target.startswith("docs/"):
        return posixpath.relpath(target.removeprefix("docs/"), own)
    if target.startswith("diagrams/") and files.get_file_from_path(target):
        return posixpath.relpath(target, own)
    if page.startswith("reference/") or not (ROOT / target).exists():
        return link
    return f"{config.repo_url}/blob/main/{target}"


def on_post_page(output: str, **_: Any) -> str:
    """Keep the theme from asking GitHub for the stars of the repository: a reader fetches nothing from elsewhere."""
    return output.replace(' data-md-component="source"', "")


on_post_template = on_post_page  # in the page for addresses that are unknown, too


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write `llms.txt`, the list of pages, and `llms-full.txt`, their text, for those who read with a program."""
    pages = [path for path in _paths(config.nav) if not path.startswith("reference/")]
    base = config.site_url or ""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Pages", ""]
    texts = []
    for path in pages:
        source = ROOT / "docs" / path
        if not source.exists():
            continue
        text = source.read_text("utf-8")
        address = base + path.removesuffix("index.md").removesuffix(".md") + ("" if path.endswith("index.md") else "/")
        lines.append(f"- [{_title(text)}]({address}): {_begin(text)}")
        texts.append(f"<!-- {address} -->\n\n{text}")
    lines += ["", "## Reference", ""]
    lines += [f"- [fsm_agent.{name}]({base}reference/{name}/)" for name in PACKAGES]
    folder = Path(config.site_dir)
    (folder / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "llms-full.txt").write_text("\n\n".join(texts), "utf-8")


def _paths(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [path for value in values for path in _paths(value)]


def _title(text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _begin(text: str) -> str:
    """Return the first sentence of a page, which says what it is for."""
    paragraph = re.sub(r"\A.*?^# .+?$\n+", "", text, flags=re.DOTALL | re.MULTILINE).split("\n\n")[0]
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|\*\*", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=[.:]) ", plain)[0].rstrip(":")


def digest(mermaid: str) -> str:
    """Return what the picture of a page says it was drawn from."""
    return hashlib.sha256(mermaid.strip().encode()).hexdigest()[:16]
