#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "jinja/bigint.hpp"
#include "jinja/value.hpp"

namespace fairlead::jinja {

class Runtime;

/// Bytes held by values of this thread; a render compares it with its limit.
inline thread_local constinit std::int64_t live_bytes = 0;

/// Deepest nesting of containers and of one-pass iterators, so that walking and freeing them cannot
/// overflow the stack.
inline constexpr int kMaxNesting = 400;

/// Nesting assumed of a container that is still unpacked JSON (the parser's limit and some).
inline constexpr int kJsonNesting = json::kMaxDepth + 2;

/// Bytes of a text, stored behind the object.
class StringObject final : public Object {
 public:
  /// Uninitialised room for `size` bytes.
  static StringObject* create(std::size_t size) {
    void* memory = ::operator new(sizeof(StringObject) + size);
    return ::new (memory) StringObject(size);
  }
  ~StringObject() override {
    live_bytes -= static_cast<std::int64_t>(size_ + sizeof(StringObject));
  }
  /// The room.
  char* data() { return reinterpret_cast<char*>(this + 1); }

  /// Never called: only `create` makes them.
  static void* operator new(std::size_t size) { return ::operator new(size); }
  /// Frees what `create` took (the compiler would pass the wrong size).
  static void operator delete(void* memory) { ::operator delete(memory); }

 private:
  explicit StringObject(std::size_t size) : size_(size) {
    live_bytes += static_cast<std::int64_t>(size + sizeof(StringObject));
  }

  std::size_t size_;
};

/// An integer outside 64 bits.
class BigObject final : public Object {
 public:
  /// Takes the number.
  explicit BigObject(BigInt number) : value(std::move(number)) {}
  const BigInt value;  ///< Never within 64 bits.
};

/// The error message of an undefined.
class HintObject final : public Object {
 public:
  /// Takes the message.
  explicit HintObject(std::string text) : message(std::move(text)) {}
  const std::string message;  ///< What using it reports.
};

/// Elements of a list or tuple. Unpacked from JSON on first use.
class ListObject final : public Object {
 public:
  /// Takes the elements.
  explicit ListObject(std::vector<Value> elements);
  /// Stands for JSON that outlives it.
  explicit ListObject(const json::Array& source) : source_(&source), depth_(kJsonNesting) {}
  ~ListObject() override;

  /// The elements.
  const std::vector<Value>& items() const {
    if (source_ != nullptr) {
      unpack();
    }
    return items_;
  }
  /// The JSON it still is, or null.
  const json::Array* source() const { return source_; }
  /// Nesting of containers below, this one included.
  int depth() const { return depth_; }
  /// True for what `groupby` yields, whose two elements have names.
  bool group = false;

 private:
  void unpack() const;

  mutable std::vector<Value> items_;
  mutable const json::Array* source_ = nullptr;
  int depth_;
};

/// Insertion-ordered map from hashable values.
class DictStore {
 public:
  /// Entries in order.
  const std::vector<Pair>& entries() const { return entries_; }
  /// The value of a text key, or null.
  const Value* find(std::string_view key) const;
  /// The value of any hashable key, or null.
  const Value* find(const Value& key) const;
  /// Sets or replaces.
  void set(Value key, Value value);
  /// Makes room.
  void reserve(std::size_t count) { entries_.reserve(count); }
  /// Forgets everything.
  void clear();

 private:
  static constexpr std::size_t kLinearLimit = 8;

  std::size_t locate(const Value& key, std::uint64_t hash) const;
  void index_all();
  void insert_index(std::size_t entry, std::uint64_t hash);

  std::vector<Pair> entries_;
  std::vector<std::uint32_t> index_;  // Open addressing: entry + 1; empty while small.
};

/// A dict. Unpacked from JSON on first use.
class DictObject final : public Object {
 public:
  /// Takes the entries.
  explicit DictObject(DictStore store);
  /// Stands for JSON that outlives it.
  explicit DictObject(const json::Object& source) : source_(&source), depth_(kJsonNesting) {}
  ~DictObject() override;

  /// The entries.
  const DictStore& store() const {
    if (source_ != nullptr) {
      unpack();
    }
    return store_;
  }
  /// The JSON it still is, or null.
  const json::Object* source() const { return source_; }
  /// Nesting of containers below, this one included.
  int depth() const { return depth_; }

 private:
  void unpack() const;

  mutable DictStore store_;
  mutable const json::Object* source_ = nullptr;
  int depth_;
};

/// Which part of a dict a view shows.
enum class ViewKind : std::uint8_t { Items, Keys, Values };

/// `dict.items()`, `.keys()`, `.values()`.
class ViewObject final : public Object {
 public:
  /// A part of a dict.
  ViewObject(Value of, ViewKind which) : dict(std::move(of)), part(which) {}
  const Value dict;     ///< The dict.
  const ViewKind part;  ///< What of it.
};

/// `range(start, stop, step)`.
class RangeObject final : public Object {
 public:
  /// `by` is not zero.
  RangeObject(std::int64_t from, std::int64_t to, std::int64_t by);
  const std::int64_t start;   ///< First element.
  const std::int64_t stop;    ///< Bound.
  const std::int64_t step;    ///< Difference, not zero.
  const std::int64_t length;  ///< Number of elements.
};

/// A one-pass iterator: a generator of a filter, or a reversed sequence.
class IteratorObject : public Object {
 public:
  /// `depth` counts the iterators it draws from, itself included.
  IteratorObject(const char* python_type, int depth) : type_name_(python_type), depth_(depth) {}
  /// The next element; false at the end and on an error (which `runtime` then holds).
  virtual bool next(Runtime& runtime, Value& out) = 0;
  /// Python's name of the type.
  const char* type_name() const { return type_name_; }
  /// Iterators below, itself included.
  int depth() const { return depth_; }

 private:
  const char* type_name_;
  int depth_;
};

/// `namespace(...)`: the one container that templates may change.
class NamespaceObject final : public Object {
 public:
  DictStore attributes;  ///< Names and values.
};

/// `cycler(...)`.
class CyclerObject final : public Object {
 public:
  /// `elements` is a tuple, not empty.
  explicit CyclerObject(Value elements) : items(std::move(elements)) {}
  const Value items;         ///< A tuple, not empty.
  std::size_t position = 0;  ///< Of the current one.
};

/// `joiner(...)`.
class JoinerObject final : public Object {
 public:
  /// Takes the separator.
  explicit JoinerObject(Value text) : separator(std::move(text)) {}
  const Value separator;  ///< What every call but the first returns.
  bool used = false;      ///< Was it called?
};

/// A named argument of a call.
struct NamedArg {
  std::string_view name;  ///< Lives as long as the call.
  Value value;            ///< What was passed.
};

/// Arguments of a call.
struct CallArgs {
  std::span<const Value> positional;  ///< In order.
  std::span<const NamedArg> named;    ///< In order, names unique.
};

/// A global function.
using Function = Value (*)(Runtime&, const CallArgs&);

/// A global function as a value.
class FunctionObject final : public Object {
 public:
  /// `function_name` is a literal.
  FunctionObject(const char* function_name, Function function)
      : name(function_name), call(function) {}
  const char* const name;  ///< Its name in templates.
  const Function call;     ///< What it does.
};

/// The object behind `value`, which must be of the matching kind.
template <class T>
T& as(const Value& value) {
  return static_cast<T&>(*value.object());
}

/// A new shared object as a value.
template <class T, class... Args>
Value make(Kind kind, Args&&... args) {
  return Value::adopt(kind, new T(std::forward<Args>(args)...));
}

}  // namespace fairlead::jinja
