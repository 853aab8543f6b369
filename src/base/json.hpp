#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.hpp"

namespace fairlead::json {

class Value;

/// Elements in order.
using Array = std::vector<Value>;

struct Member;

/// An object's members in the order of the text. A repeated key keeps its first place and takes its
/// last value, as Python's `json` does.
class Object {
 public:
  Object();
  /// Takes members whose keys are already unique.
  explicit Object(std::vector<Member> members);
  Object(const Object& other);
  Object(Object&& other) noexcept;
  Object& operator=(const Object& other);
  Object& operator=(Object&& other) noexcept;
  ~Object();

  /// The member's value, or null when there is none.
  const Value* find(std::string_view key) const;
  /// The member's value, for changing it, or null.
  Value* find(std::string_view key);
  /// Sets or replaces a member.
  void set(std::string key, Value value);
  /// Removes a member; true when it was there.
  bool erase(std::string_view key);
  /// Number of members.
  std::size_t size() const;
  /// True when there is no member.
  bool empty() const;
  /// First member.
  const Member* begin() const;
  /// Past the last member.
  const Member* end() const;

 private:
  std::vector<Member> members_;
};

/// An integer outside 64 bits, as its decimal text.
struct BigInt {
  std::string digits;  ///< Optional `-`, then digits.
};

/// A JSON document for whatever is opaque to the server (tools, template arguments, model files).
/// The request path proper parses in place and never builds one for the whole body.
class Value {
 public:
  /// What a document is one of; monostate is null.
  using Storage =
      std::variant<std::monostate, bool, std::int64_t, double, BigInt, std::string, Array, Object>;

  Value() = default;
  /// A document of the argument's kind, so that literals convert.
  Value(bool value) : storage_(value) {}
  Value(std::int64_t value) : storage_(value) {}
  Value(int value) : storage_(std::int64_t{value}) {}
  Value(double value) : storage_(value) {}
  Value(BigInt value) : storage_(std::move(value)) {}
  Value(std::string value) : storage_(std::move(value)) {}
  Value(std::string_view value) : storage_(std::string(value)) {}
  Value(const char* value) : storage_(std::string(value)) {}
  Value(Array value) : storage_(std::move(value)) {}
  Value(Object value) : storage_(std::move(value)) {}

  /// True for JSON null.
  bool is_null() const { return std::holds_alternative<std::monostate>(storage_); }
  /// The boolean, or null when it is something else. Likewise below.
  const bool* as_bool() const { return std::get_if<bool>(&storage_); }
  /// The integer.
  const std::int64_t* as_int() const { return std::get_if<std::int64_t>(&storage_); }
  /// The number written with a fraction or exponent.
  const double* as_double() const { return std::get_if<double>(&storage_); }
  /// The text.
  const std::string* as_string() const { return std::get_if<std::string>(&storage_); }
  /// The array.
  const Array* as_array() const { return std::get_if<Array>(&storage_); }
  /// The object.
  const Object* as_object() const { return std::get_if<Object>(&storage_); }
  /// The array, for changing it.
  Array* as_array() { return std::get_if<Array>(&storage_); }
  /// The object, for changing it.
  Object* as_object() { return std::get_if<Object>(&storage_); }
  /// Any number as a double; false when it is none.
  bool number(double& out) const;
  /// The member `key` of an object, or null.
  const Value* find(std::string_view key) const;
  /// The alternatives, for visiting.
  const Storage& storage() const { return storage_; }

 private:
  Storage storage_;
};

/// One member of an object.
struct Member {
  std::string key;  ///< Unescaped.
  Value value;      ///< Anything.
};

/// Deepest nesting that `parse` accepts.
inline constexpr int kMaxDepth = 128;

/// Parses one document. Errors are `InvalidRequest` with the reason: syntax, invalid UTF-8, raw
/// control characters, nesting above `max_depth`, anything after the document.
Result<Value> parse(std::string_view text, int max_depth = kMaxDepth);

/// Appends `text` as a JSON string with its quotes. Invalid UTF-8 is replaced by U+FFFD, so that
/// the output is always valid.
void append_string(std::string& out, std::string_view text);

/// The same without the quotes: what is appended piece by piece, at the bounds of characters, is
/// one string.
void append_escaped(std::string& out, std::string_view text);

/// Appends a finite number in the shortest form that reads back equal; others become `null`.
void append_number(std::string& out, double value);

/// Appends an integer.
void append_number(std::string& out, std::int64_t value);

/// Appends an unsigned integer.
void append_number(std::string& out, std::uint64_t value);

/// Appends the value in compact form.
void append(std::string& out, const Value& value);

/// The value in compact form.
std::string dump(const Value& value);

/// Append-only writer of compact JSON with automatic commas:
/// `Writer w(out); w.begin_object().key("id").string(id).end_object();`. Keys are written as they
/// are and must not need escaping.
class Writer {
 public:
  /// Appends to `out`, which must outlive the writer.
  explicit Writer(std::string& out) : out_(out) {}

  /// Opens an object.
  Writer& begin_object();
  /// Closes the innermost object.
  Writer& end_object();
  /// Opens an array.
  Writer& begin_array();
  /// Closes the innermost array.
  Writer& end_array();
  /// Writes a member's key; a value must follow.
  Writer& key(std::string_view name);
  /// Writes a string value.
  Writer& string(std::string_view text);
  /// Writes an integer value.
  Writer& integer(std::int64_t value);
  /// Writes an unsigned integer value.
  Writer& unsigned_integer(std::uint64_t value);
  /// Writes a number; not finite becomes null.
  Writer& number(double value);
  /// Writes true or false.
  Writer& boolean(bool value);
  /// Writes null.
  Writer& null();
  /// Writes text that is JSON already.
  Writer& raw(std::string_view json);
  /// Writes a document.
  Writer& value(const Value& document);

 private:
  void separate();

  std::string& out_;
  bool comma_ = false;
};

}  // namespace fairlead::json
