#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "jinja/runtime.hpp"

namespace fairlead::jinja {

class Activation;
struct ForStatement;

/// Where a loop's items come from; lives as long as the for statement runs.
class ItemSource {
 public:
  ItemSource() = default;
  virtual ~ItemSource() = default;
  ItemSource(const ItemSource&) = delete;
  ItemSource& operator=(const ItemSource&) = delete;
  /// The next item; false at the end and on an error.
  virtual bool pull(Value& out) = 0;
  /// Number of items when it is known without walking.
  virtual std::optional<std::size_t> size() const = 0;
};

/// The `loop` variable: looks ahead only when asked.
class LoopObject final : public Object {
 public:
  /// Items come from `source` until `close` is called.
  LoopObject(ItemSource& source, std::int64_t depth) : depth0(depth), source_(&source) {}

  /// Moves to the next item; false at the end and on an error.
  bool next(Value& out);
  /// The item after this one, or null at the end.
  const Value* peek();
  /// Number of items; walks the rest when it is not known.
  std::optional<std::int64_t> length(Runtime& runtime);
  /// A named attribute; the unset marker when there is none.
  Value attribute(Runtime& runtime, std::string_view name);
  /// `loop.cycle(...)`.
  Value cycle(Runtime& runtime, const CallArgs& args) const;
  /// `loop.changed(...)`.
  Value changed(Runtime& runtime, const CallArgs& args);
  /// The for statement ended.
  void close();

  std::int64_t index0 = -1;                 ///< Of the current item.
  const std::int64_t depth0;                ///< Depth of recursion.
  const ForStatement* recursion = nullptr;  ///< The statement to run again when called, or null.
  Activation* home = nullptr;               ///< Variables around that statement.

 private:
  ItemSource* source_;
  std::vector<Value> ahead_;  // Drained from the source, in reverse order.
  Value current_ = Value::missing();
  Value before_ = Value::missing();
  Value after_ = Value::missing();
  Value last_changed_ = Value::missing();
  std::optional<std::int64_t> length_;
};

}  // namespace fairlead::jinja
