#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "mock/request_checks.hpp"

namespace fairlead::mock {

/// What a field of the HTTP interface holds.
enum class FieldType : std::uint8_t {
  Boolean,      ///< true or false.
  Unsigned32,   ///< A whole number from 0.
  Integer32,    ///< A whole number.
  Integer64,    ///< A whole number.
  Real,         ///< Any number.
  Text,         ///< A string.
  Ids,          ///< A list of token ids.
  IdLists,      ///< A list of lists of token ids.
  Texts,        ///< A list of strings.
  TextOrTexts,  ///< Either.
  Object,       ///< An object with any members.
  Biases,       ///< An object of numbers by token id.
};

/// Collects what is wrong with the form of a body, in the words of serde, which stops at the first
/// fault and tells where the reader stood (here: the end of the body), or of pydantic, which names
/// all.
class TypeFaults {
 public:
  /// `text` is the body, which must outlive the collection.
  TypeFaults(bool python, std::string_view text) : python_(python), text_(text) {}

  /// The value at `path` (names and indices with dots between) is of another type.
  void wrong_type(const std::string& path, FieldType type, const json::Value& value);
  /// A required member is not there; `prefix` is its object's path with a dot behind it, or empty.
  void missing(std::string_view prefix, std::string_view name, std::size_t members);
  /// A member of the object at `path` was given under two names (serde only).
  void twice(std::string_view path, std::string_view name);
  /// A list must not be empty (pydantic only).
  void too_short(std::string_view name);
  /// The refusal, unless nothing was wrong.
  Check result() const;

 private:
  void add(std::string_view path, std::string entry);
  std::string place() const;

  bool python_;
  std::string_view text_;
  std::string first_path_;
  std::vector<std::string> entries_;
  std::size_t count_ = 0;
};

}  // namespace fairlead::mock
