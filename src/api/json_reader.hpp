#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fairlead::api {

/// A borrowed callable; must not outlive what it was made from.
template <class Signature>
class FunctionRef;

/// A borrowed callable; must not outlive what it was made from.
template <class... Args>
class FunctionRef<void(Args...)> {
 public:
  /// Borrows `callable`.
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& callable)
      : object_(const_cast<void*>(static_cast<const void*>(&callable))),
        call_([](void* object, Args... args) {
          (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  /// Calls it.
  void operator()(Args... args) const { call_(object_, args...); }

 private:
  void* object_;
  void (*call_)(void*, Args...);
};

/// What kind of value stands at the reader's place.
enum class JsonType : std::uint8_t { Null, Bool, Number, String, Array, Object };

/// `an integer`, `a string`, … for messages.
std::string_view type_name(JsonType type);

/// Most values that the documents built from one body may hold together; each takes some fifty
/// bytes, whatever it took in the body.
inline constexpr std::size_t kMaxValues = std::size_t{1} << 20;

/// A number as it was written.
struct JsonNumber {
  bool integral = false;     ///< It is a whole number of 64 bits, also when written like `1.0`.
  std::int64_t integer = 0;  ///< Its value when integral.
  double value = 0;          ///< Its value, rounded.
};

/// Reads one JSON body in place and in one pass. Every byte is checked: syntax, UTF-8, control
/// characters, nesting (json::kMaxDepth), text behind the document. The first failure sticks and
/// ends all loops; reads after it return empty values. Texts stay valid until the next `read`.
/// Reusable; one thread at a time.
class JsonReader {
 public:
  JsonReader();
  ~JsonReader();
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  /// Reads a body whose root must be an object; calls `on_member` for each member in turn, repeated
  /// keys included. The body's capacity must exceed its size by http::kBodyPadding. Errors are
  /// `InvalidRequest`, or whatever `fail` was given.
  Result<> read(const std::string& body, FunctionRef<void(std::string_view key)> on_member);

  /// Kind of the value at hand; Null after a failure.
  JsonType type();
  /// Walks the object at hand.
  void object(FunctionRef<void(std::string_view key)> on_member);
  /// Walks the array at hand.
  void array(FunctionRef<void(std::size_t index)> on_element);
  /// The string at hand.
  std::string_view string();
  /// The boolean at hand.
  bool boolean();
  /// The number at hand.
  JsonNumber number();
  /// Passes over the null at hand.
  void null();
  /// The value at hand as a document. Fails once more than kMaxValues were built.
  json::Value value();
  /// Passes over the value at hand, which is checked all the same.
  void skip();

  /// Ends the reading with this failure, unless there is one already.
  void fail(Error error);
  /// True once something failed.
  bool failed() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fairlead::api
