"""The documentation check finds undocumented public declarations and nothing else."""

import textwrap

import check_docs
import pytest


def undocumented(tmp_path, text):
    header = tmp_path / "a.hpp"
    header.write_text("#pragma once\n#include <coroutine>\n#include <string>\n" + textwrap.dedent(text))
    missing, _, errors = check_docs.check_headers([str(header)], str(tmp_path), str(tmp_path))
    assert errors == []
    return sorted(missing.values())


@pytest.mark.parametrize(("text", "names"), [
    ("int f(int x);", ["f"]),
    ("// Not a doc comment.\nint f(int x);", ["f"]),
    ("template <class T>\nint f(T x);", ["f"]),
    ("inline constexpr int kBound = 1;", ["kBound"]),
    ("using Name = std::string;", ["Name"]),
    ("enum class E { A };", ["E", "E::A"]),
    ("enum class E { A, B };", ["E", "E::A", "E::B"]),
    ("/// E.\nenum class E {\n  A,\n  B,\n};", ["E::A", "E::B"]),
    ("struct S { int x; };", ["S", "S::x"]),
    ("/// S.\nstruct S { int x; };", ["S::x"]),
    ("/// C.\nclass C { public: int f(); };", ["C::f"]),
    ("/// C.\nclass C { public: explicit C(int x); };", ["C::C"]),
    ("/// C.\nclass C { public: struct In { int x; }; };", ["C::In", "C::In::x"]),
    ("/// C.\ntemplate <class T> class C { public: T f(); };", ["C::f"]),
    ("/// F.\nint f(int x);\nint g();\nint f();", ["g"]),
])
def test_missing_comment_is_found(tmp_path, text, names):
    assert undocumented(tmp_path, text) == names
    assert undocumented(tmp_path, "namespace a::b {\n" + text + "\n}") == names


@pytest.mark.parametrize("text", [
    "/// F.\nint f(int x);",
    "/// F, whatever comes.\nint f(int x);\nint f(long x);",
    "/// E.\nenum class E {\n  A,  ///< First.\n  /// Second.\n  B,\n};",
    "/// S.\nstruct S {\n  explicit S(int a) : x(a) {}\n  int x;  ///< X.\n};",
    "/// E, as the standard names them.\nenum class E {\n  A,\n  B,\n  C,\n  D,\n  F,\n  G,\n  H,\n};",
    "/// Which way.\nenum class E { Left, Right };",
    "/// S.\nstruct S {\n  int x = 0;  ///< X.\n};",
    "/// C.\nclass C {\n public:\n  C() = default;\n  C(const C&) = delete;\n  C(C&&) noexcept;\n"
    "  C& operator=(C&&) noexcept;\n  ~C();\n\n private:\n  int x_ = 0;\n  void f();\n};",
    "/// A.\nstruct A {\n  virtual ~A() = default;\n  /// F.\n  virtual int f() = 0;\n};\n"
    "/// B.\nstruct B final : A {\n  int f() override;\n};",
    "/// C.\nclass C { protected: int f(); int x_ = 0; };",
    "/// C.\nclass C { struct In { int x; }; };",
    "namespace detail { int f(); struct S { int x; }; }",
    "class Later;\nenum class Kind : int;",
    "/// C.\nclass C {\n public:\n  /// F.\n  int f();\n};\ninline int C::f() { return 1; }",
    "/// S.\nstruct S {\n  bool await_ready();\n  void await_suspend(std::coroutine_handle<> h);\n};",
    "/// T.\ntemplate <class T>\nstruct S {\n  T x;  ///< X.\n};\n/// For ints.\ntemplate <>\nstruct S<int> {\n"
    "  int y;  ///< Y.\n};",
])
def test_documented_or_exempt_passes(tmp_path, text):
    assert undocumented(tmp_path, text) == []


def test_private_parts_and_other_files_are_not_looked_at(tmp_path):
    (tmp_path / "other").mkdir()
    assert undocumented(tmp_path, "#include <vector>\n/// F.\nstd::vector<int> f();") == []


def test_broken_header_is_an_error(tmp_path):
    header = tmp_path / "a.hpp"
    header.write_text('#include "nowhere.hpp"\n')
    _, _, errors = check_docs.check_headers([str(header)], str(tmp_path), str(tmp_path))
    assert errors
