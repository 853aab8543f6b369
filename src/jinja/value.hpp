#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"

namespace fairlead::jinja {

/// What a value is. The names follow Python's types.
enum class Kind : std::uint8_t {
  Missing,    ///< Internal: an unset variable, or the result of a failed evaluation.
  Undefined,  ///< Jinja's undefined object.
  None,       ///< `None`.
  Bool,       ///< `bool`.
  Int,        ///< `int` within 64 bits.
  BigInt,     ///< `int` outside 64 bits.
  Float,      ///< `float`.
  String,     ///< `str`, or `Markup` when flagged.
  List,       ///< `list`.
  Tuple,      ///< `tuple`.
  Dict,       ///< `dict`, insertion-ordered.
  DictView,   ///< `dict.items()`, `.keys()` or `.values()`.
  Range,      ///< `range`.
  Iterator,   ///< A generator or another one-pass iterator.
  Namespace,  ///< `namespace(...)`.
  Function,   ///< A global function.
  Method,     ///< A method bound to its object.
  Macro,      ///< A macro or the `caller` of a call block.
  Loop,       ///< The `loop` of a for statement.
  Cycler,     ///< `cycler(...)`.
  Joiner,     ///< `joiner(...)`.
};

class Object;
class Value;

/// Key and value of a dict.
using Pair = std::pair<Value, Value>;

/// A Python-like value, cheap to copy: containers are shared and never change once built, texts may
/// be views. Reference counts are not atomic, so a value (with everything it shares) belongs to one
/// thread at a time.
class Value {
 public:
  /// `None`.
  Value() : kind_(Kind::None) { data_.integer = 0; }
  Value(const Value& other) noexcept
      : kind_(other.kind_),
        flag_(other.flag_),
        size_(other.size_),
        data_(other.data_),
        owner_(other.owner_) {
    retain();
  }
  Value(Value&& other) noexcept
      : kind_(other.kind_),
        flag_(other.flag_),
        size_(other.size_),
        data_(other.data_),
        owner_(other.owner_) {
    other.owner_ = nullptr;
    other.kind_ = Kind::None;
  }
  Value& operator=(const Value& other) noexcept {
    Value copy(other);
    swap(copy);
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    Value moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Value() { release(); }

  /// `True` or `False`.
  static Value boolean(bool value);
  /// An integer.
  static Value integer(std::int64_t value);
  /// A float.
  static Value number(double value);
  /// A text that the value keeps. Must be well-formed UTF-8.
  static Value string(std::string_view text);
  /// A text that the caller keeps alive for as long as the value or anything made of it lives.
  static Value borrowed(std::string_view text);
  /// A list.
  static Value list(std::vector<Value> items);
  /// A tuple.
  static Value tuple(std::vector<Value> items);
  /// A dict; a repeated key keeps its first place and takes its last value. Keys must be hashable
  /// (None, bool, numbers, texts, tuples of those).
  static Value dict(std::vector<Pair> items);
  /// Jinja's undefined, without a name.
  static Value undefined();

  /// Internal: the unset marker.
  static Value missing() {
    Value value;
    value.kind_ = Kind::Missing;
    return value;
  }

  /// What it is.
  Kind kind() const { return kind_; }
  /// True for the unset marker.
  bool is_missing() const { return kind_ == Kind::Missing; }
  /// True for undefined.
  bool is_undefined() const { return kind_ == Kind::Undefined; }
  /// True for `None`.
  bool is_none() const { return kind_ == Kind::None; }
  /// True for a text.
  bool is_string() const { return kind_ == Kind::String; }
  /// The text's bytes; only for a text.
  std::string_view text() const { return {data_.text, size_}; }
  /// True for a text that counts as safe HTML (`Markup`).
  bool is_markup() const { return kind_ == Kind::String && flag_; }
  /// The boolean; only for a boolean.
  bool as_bool() const { return data_.integer != 0; }
  /// The integer; only for an integer (or boolean).
  std::int64_t as_int() const { return data_.integer; }
  /// The float; only for a float.
  double as_float() const { return data_.number; }
  /// Internal: the shared object behind it, or null.
  Object* object() const { return owner_; }

  /// Internal: a value of kind `kind` that takes over one reference of `object`.
  static Value adopt(Kind kind, Object* object) {
    Value value;
    value.kind_ = kind;
    value.owner_ = object;
    return value;
  }
  /// Internal: a text inside memory that `owner` keeps (null: somebody else); takes over one
  /// reference of it.
  static Value text_of(std::string_view text, Object* owner, bool markup) {
    Value value;
    value.kind_ = Kind::String;
    value.flag_ = markup;
    value.size_ = static_cast<std::uint32_t>(text.size());
    value.data_.text = text.data();
    value.owner_ = owner;
    return value;
  }
  /// Internal: an undefined that remembers the missing name and the type it was looked up in
  /// (null: it was a variable). Both texts must outlive the value.
  static Value undefined_name(std::string_view name, const char* owner_type);
  /// Internal: an undefined with its error message.
  static Value undefined_hint(std::string message);
  /// Internal: why using this undefined is an error.
  std::string undefined_message() const;

  /// Exchanges two values.
  void swap(Value& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(flag_, other.flag_);
    std::swap(size_, other.size_);
    std::swap(data_, other.data_);
    std::swap(owner_, other.owner_);
  }

 private:
  inline void retain() const noexcept;
  inline void release() noexcept;

  union Data {
    std::int64_t integer;
    double number;
    const char* text;
  };

  Kind kind_;
  bool flag_ = false;
  std::uint32_t size_ = 0;
  Data data_;
  Object* owner_ = nullptr;
};

/// Base of what values share. `references` below zero means that it lives in a template and is
/// never counted.
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  /// Number of values that point here.
  std::int32_t references = 1;
};

inline void Value::retain() const noexcept {
  if (owner_ != nullptr && owner_->references >= 0) {
    ++owner_->references;
  }
}

inline void Value::release() noexcept {
  if (owner_ == nullptr || owner_->references < 0) {
    return;
  }
  --owner_->references;
  if (owner_->references == 0) {
    delete owner_;
  }
}

/// The document as a value. Texts are views into it and containers are unpacked on first use, so
/// the document must outlive the value and everything made of it.
Value from_json(const json::Value& document);

}  // namespace fairlead::jinja
