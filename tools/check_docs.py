#!/usr/bin/env python3
"""Fails on public declarations in src/**/*.hpp that have no `///` comment.

Looked at: types, functions, constants, aliases and enum values at namespace level and the public
members of classes. Exempt: constructors of structs (their fields say it); constructors,
destructors and operators that are defaulted, deleted or copy and move; overrides; the coroutine
protocol; `detail` and unnamed namespaces; friends. Overloads that follow a documented one at once
share its comment; so do enum values written several to a line, and those of an enum with more
than LONG_LIST of them (tokens, Unicode's categories).

One translation unit per folder includes all its headers; folders are read by two processes.
"""

import argparse
import concurrent.futures
import os
import sys
import tempfile
from pathlib import Path

import clang.cindex
from clang.cindex import AccessSpecifier, CursorKind, TranslationUnit

ROOT = Path(__file__).resolve().parent.parent
LLVM = Path("/usr/lib/llvm-19")

TYPES = {CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL, CursorKind.UNION_DECL,
         CursorKind.CLASS_TEMPLATE, CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION}
CHECKED = TYPES | {
    CursorKind.ENUM_DECL, CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE,
    CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR,
    CursorKind.CONVERSION_FUNCTION, CursorKind.FIELD_DECL, CursorKind.VAR_DECL,
    CursorKind.TYPE_ALIAS_DECL, CursorKind.TYPEDEF_DECL, CursorKind.TYPE_ALIAS_TEMPLATE_DECL,
    CursorKind.ENUM_CONSTANT_DECL, CursorKind.CONCEPT_DECL,
}

OVERLOADS = {CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE, CursorKind.CXX_METHOD,
             CursorKind.CONSTRUCTOR}
HIDDEN = {AccessSpecifier.PRIVATE, AccessSpecifier.PROTECTED}
# Longer enums are lists whose values their names explain; the enum's comment says what of.
LONG_LIST = 6
# Names the language gives to the parts of awaitables and coroutine types.
PROTOCOL = {"await_ready", "await_suspend", "await_resume", "promise_type"}


def load_libclang() -> None:
    """Uses the compiler's own libclang when there is one: the one in the Python package is older
    than the standard library's use of concepts."""
    if clang.cindex.Config.loaded:
        return
    for name in ("libclang-19.so.1", "libclang.so.1"):
        library = LLVM / "lib" / name
        if library.exists():
            clang.cindex.Config.set_library_file(str(library))
            return


def is_special(cursor) -> bool:
    """Members whose meaning the language gives."""
    if cursor.kind == CursorKind.DESTRUCTOR:
        return True
    if cursor.kind == CursorKind.CONSTRUCTOR:
        if cursor.semantic_parent.kind == CursorKind.STRUCT_DECL:
            return True
        return (cursor.is_default_method() or cursor.is_deleted_method()
                or cursor.is_copy_constructor() or cursor.is_move_constructor()
                or not list(cursor.get_arguments()))
    if cursor.kind == CursorKind.CXX_METHOD:
        if cursor.is_deleted_method() or cursor.is_default_method():
            return True
        if cursor.spelling == "operator=":
            return True
        return any(child.kind in {CursorKind.CXX_OVERRIDE_ATTR, CursorKind.CXX_FINAL_ATTR}
                   for child in cursor.get_children())
    return False


def is_forward(cursor) -> bool:
    """A declaration of a type that is defined elsewhere."""
    return cursor.kind in TYPES | {CursorKind.ENUM_DECL} and not cursor.is_definition()


def documented(cursor) -> bool:
    comment = cursor.raw_comment
    return bool(comment) and comment.startswith(("///", "/**", "/*!", "//!"))


class Visitor:
    """Collects undocumented declarations of the project's headers from one translation unit."""

    def __init__(self, source_dir: Path):
        self.source_dir = str(source_dir) + os.sep
        self.missing: dict[tuple[str, int, int], str] = {}
        self.checked = 0

    def visit(self, cursor) -> None:
        covered = ""  # Name of the overloads that the last comment speaks for.
        for child in cursor.get_children():
            if child.kind == CursorKind.CXX_ACCESS_SPEC_DECL:
                covered = ""
            location = child.location
            if location.file is None or not location.file.name.startswith(self.source_dir):
                continue
            if not location.file.name.endswith(".hpp"):
                continue
            if child.kind == CursorKind.NAMESPACE:
                if child.spelling not in {"", "detail"}:
                    self.visit(child)
            elif child.kind in {CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL}:
                self.visit(child)
            elif child.kind in CHECKED:
                covered = self.check(child, covered)

    def check(self, cursor, covered: str) -> str:
        """Looks at one declaration; returns the name that its comment covers for what follows."""
        if cursor.access_specifier in HIDDEN or is_special(cursor):
            return covered
        if is_forward(cursor) or cursor.spelling in PROTOCOL:
            return covered
        parent = cursor.semantic_parent
        lexical = cursor.lexical_parent
        out_of_class = parent is not None and parent.kind in TYPES and lexical != parent
        if not out_of_class and not self.is_unnamed(cursor):
            self.checked += 1
            if documented(cursor):
                covered = cursor.spelling
            elif not self.shares(cursor, covered):
                self.report(cursor)
        if cursor.kind in TYPES or cursor.kind == CursorKind.ENUM_DECL:
            self.visit(cursor)
        return covered

    @staticmethod
    def shares(cursor, covered: str) -> bool:
        """True when the comment of something before it speaks for this declaration too."""
        if cursor.kind == CursorKind.ENUM_CONSTANT_DECL:
            values = list(cursor.semantic_parent.get_children())
            beside = sum(value.location.line == cursor.location.line for value in values) > 1
            return documented(cursor.semantic_parent) and (beside or len(values) > LONG_LIST)
        return cursor.kind in OVERLOADS and cursor.spelling == covered

    @staticmethod
    def is_unnamed(cursor) -> bool:
        return cursor.kind in TYPES | {CursorKind.ENUM_DECL} and (
            not cursor.spelling or cursor.is_anonymous() or "(unnamed" in cursor.spelling)

    def report(self, cursor) -> None:
        location = cursor.location
        names = [cursor.spelling]
        parent = cursor.semantic_parent
        while parent is not None and parent.kind in TYPES | {CursorKind.ENUM_DECL}:
            names.insert(0, parent.spelling)
            parent = parent.semantic_parent
        self.missing[(location.file.name, location.line, location.column)] = "::".join(names)


def arguments(build: Path) -> list[str]:
    return ["-x", "c++", "-std=c++23", "-march=x86-64-v2", "-DNDEBUG", f"-I{ROOT / 'src'}",
            f"-I{build / 'generated'}", f"-resource-dir={LLVM / 'lib/clang/19'}"]


def check_headers(headers: list[str], source_dir: str, build: str) -> tuple[dict, int, list[str]]:
    """(undocumented declarations, number checked, parse errors) of some headers together."""
    load_libclang()
    with tempfile.TemporaryDirectory() as scratch:
        unit = Path(scratch) / "headers.cpp"
        unit.write_text("".join(f'#include "{header}"\n' for header in headers))
        parsed = clang.cindex.Index.create().parse(
            str(unit), args=[*arguments(Path(build)), f"-I{source_dir}"],
            options=TranslationUnit.PARSE_SKIP_FUNCTION_BODIES)
    errors = [str(d) for d in parsed.diagnostics if d.severity >= clang.cindex.Diagnostic.Error]
    visitor = Visitor(Path(source_dir))
    visitor.visit(parsed.cursor)
    return visitor.missing, visitor.checked, errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release",
                        help="build folder, for headers generated from proto/")
    parser.add_argument("folders", nargs="*", help="folders of src/ to look at; all by default")
    options = parser.parse_args()
    source = options.source.resolve()
    groups: dict[str, list[str]] = {}
    for header in sorted(source.rglob("*.hpp")):
        folder = header.relative_to(source).parts[0]
        if not options.folders or folder in options.folders:
            groups.setdefault(folder, []).append(str(header))
    missing: dict[tuple[str, int, int], str] = {}
    checked, failed = 0, False
    with concurrent.futures.ProcessPoolExecutor(max_workers=2) as pool:
        jobs = {folder: pool.submit(check_headers, headers, str(source), str(options.build.resolve()))
                for folder, headers in sorted(groups.items(), key=lambda item: -len(item[1]))}
        for folder, job in jobs.items():
            found, count, errors = job.result()
            missing |= found
            checked += count
            for error in errors:
                failed = True
                print(f"src/{folder}: does not parse: {error}")
    for (name, line, column), what in sorted(missing.items()):
        print(f"{os.path.relpath(name, source.parent)}:{line}:{column}: `{what}` has no `///` comment")
    print(f"check_docs: {sum(map(len, groups.values()))} headers, {checked} declarations, "
          f"{len(missing)} undocumented")
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
