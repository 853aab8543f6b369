#include "jinja/value.hpp"

#include <algorithm>
#include <cstring>

#include "jinja/object.hpp"
#include "jinja/ops.hpp"

namespace fairlead::jinja {
namespace {

Value copy_text(std::string_view text, bool markup) {
  StringObject* object = StringObject::create(text.size());
  std::memcpy(object->data(), text.data(), text.size());
  return Value::text_of({object->data(), text.size()}, object, markup);
}

int nesting(const Value& value) {
  switch (value.kind()) {
    case Kind::List:
    case Kind::Tuple: return as<ListObject>(value).depth();
    case Kind::Dict: return as<DictObject>(value).depth();
    case Kind::DictView: return nesting(as<ViewObject>(value).dict) + 1;
    case Kind::Iterator: return as<IteratorObject>(value).depth();
    default: return 0;
  }
}

std::int64_t bytes_of(const DictStore& store) {
  return static_cast<std::int64_t>(store.entries().capacity() * sizeof(Pair) * 3 / 2);
}

std::int64_t bytes_of(const std::vector<Value>& items) {
  return static_cast<std::int64_t>(items.capacity() * sizeof(Value));
}

}  // namespace

Value Value::boolean(bool value) {
  Value result;
  result.kind_ = Kind::Bool;
  result.data_.integer = value ? 1 : 0;
  return result;
}

Value Value::integer(std::int64_t value) {
  Value result;
  result.kind_ = Kind::Int;
  result.data_.integer = value;
  return result;
}

Value Value::number(double value) {
  Value result;
  result.kind_ = Kind::Float;
  result.data_.number = value;
  return result;
}

Value Value::string(std::string_view text) { return copy_text(text, false); }

Value Value::borrowed(std::string_view text) { return text_of(text, nullptr, false); }

Value Value::list(std::vector<Value> items) {
  return make<ListObject>(Kind::List, std::move(items));
}

Value Value::tuple(std::vector<Value> items) {
  return make<ListObject>(Kind::Tuple, std::move(items));
}

Value Value::dict(std::vector<Pair> items) {
  DictStore store;
  store.reserve(items.size());
  for (Pair& item : items) {
    store.set(std::move(item.first), std::move(item.second));
  }
  return make<DictObject>(Kind::Dict, std::move(store));
}

Value Value::undefined() { return undefined_hint("undefined"); }

Value Value::undefined_name(std::string_view name, const char* owner_type) {
  constexpr std::size_t kMaxName = 0xFFFFFF;
  Value value = text_of(name.substr(0, kMaxName), nullptr, false);
  value.kind_ = Kind::Undefined;
  value.flag_ = owner_type != nullptr;
  if (owner_type != nullptr) {
    // The type is one of a few static texts, so its place in them is all that is kept.
    value.size_ |= static_cast<std::uint32_t>(type_index(owner_type)) << 24;
  }
  return value;
}

Value Value::undefined_hint(std::string message) {
  return make<HintObject>(Kind::Undefined, std::move(message));
}

std::string Value::undefined_message() const {
  if (owner_ != nullptr) {
    return static_cast<const HintObject*>(owner_)->message;
  }
  const std::string name(data_.text, size_ & 0xFFFFFF);
  if (!flag_) {
    return "'" + name + "' is undefined";
  }
  const std::string type = indexed_type(size_ >> 24);
  return "'" + type + (type == "None" ? "" : " object") + "' has no attribute '" + name + "'";
}

ListObject::ListObject(std::vector<Value> elements) : items_(std::move(elements)), depth_(1) {
  live_bytes += bytes_of(items_);
  for (const Value& item : items_) {
    depth_ = std::max(depth_, nesting(item) + 1);
  }
}

ListObject::~ListObject() { live_bytes -= bytes_of(items_); }

void ListObject::unpack() const {
  items_.reserve(source_->size());
  for (const json::Value& element : *source_) {
    items_.push_back(from_json(element));
  }
  source_ = nullptr;
  live_bytes += bytes_of(items_);
}

const Value* DictStore::find(std::string_view key) const {
  if (index_.empty()) {
    for (const Pair& entry : entries_) {
      if (entry.first.is_string() && entry.first.text() == key) {
        return &entry.second;
      }
    }
    return nullptr;
  }
  const Value wrapped = Value::borrowed(key);
  const std::size_t at = locate(wrapped, hash_value(wrapped));
  return at == entries_.size() ? nullptr : &entries_[at].second;
}

const Value* DictStore::find(const Value& key) const {
  if (key.is_string()) {
    return find(key.text());
  }
  const std::size_t at = locate(key, index_.empty() ? 0 : hash_value(key));
  return at == entries_.size() ? nullptr : &entries_[at].second;
}

std::size_t DictStore::locate(const Value& key, std::uint64_t hash) const {
  if (index_.empty()) {
    const auto same = [&key](const Pair& entry) { return key_equal(entry.first, key); };
    return static_cast<std::size_t>(std::ranges::find_if(entries_, same) - entries_.begin());
  }
  const std::size_t mask = index_.size() - 1;
  for (std::size_t slot = hash & mask; index_[slot] != 0; slot = (slot + 1) & mask) {
    const std::size_t entry = index_[slot] - 1;
    if (key_equal(entries_[entry].first, key)) {
      return entry;
    }
  }
  return entries_.size();
}

void DictStore::set(Value key, Value value) {
  const std::uint64_t hash = index_.empty() ? 0 : hash_value(key);
  const std::size_t at = locate(key, hash);
  if (at != entries_.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (!index_.empty() && entries_.size() * 2 <= index_.size()) {
    insert_index(at, hash);
  } else if (entries_.size() > kLinearLimit) {
    index_all();
  }
}

void DictStore::clear() {
  // The entries leave first: freeing them may look at this object again.
  std::vector<Pair> gone;
  gone.swap(entries_);
  index_.clear();
}

void DictStore::index_all() {
  std::size_t size = 4 * kLinearLimit;
  while (size < entries_.size() * 4) {
    size *= 2;
  }
  index_.assign(size, 0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    insert_index(i, hash_value(entries_[i].first));
  }
}

void DictStore::insert_index(std::size_t entry, std::uint64_t hash) {
  const std::size_t mask = index_.size() - 1;
  std::size_t slot = hash & mask;
  while (index_[slot] != 0) {
    slot = (slot + 1) & mask;
  }
  index_[slot] = static_cast<std::uint32_t>(entry + 1);
}

DictObject::DictObject(DictStore store) : store_(std::move(store)), depth_(1) {
  live_bytes += bytes_of(store_);
  for (const Pair& entry : store_.entries()) {
    depth_ = std::max({depth_, nesting(entry.first) + 1, nesting(entry.second) + 1});
  }
}

DictObject::~DictObject() { live_bytes -= bytes_of(store_); }

void DictObject::unpack() const {
  store_.reserve(source_->size());
  for (const json::Member& member : *source_) {
    store_.set(Value::borrowed(member.key), from_json(member.value));
  }
  source_ = nullptr;
  live_bytes += bytes_of(store_);
}

RangeObject::RangeObject(std::int64_t from, std::int64_t to, std::int64_t by)
    : start(from),
      stop(to),
      step(by),
      length(by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0)
                    : (from > to ? (from - to - 1) / -by + 1 : 0)) {}

Value from_json(const json::Value& document) {
  if (document.is_null()) {
    return {};
  }
  if (const bool* boolean = document.as_bool()) {
    return Value::boolean(*boolean);
  }
  if (const std::int64_t* integer = document.as_int()) {
    return Value::integer(*integer);
  }
  if (const double* number = document.as_double()) {
    return Value::number(*number);
  }
  if (const std::string* text = document.as_string()) {
    return Value::borrowed(*text);
  }
  if (const json::Array* array = document.as_array()) {
    return make<ListObject>(Kind::List, *array);
  }
  if (const json::Object* object = document.as_object()) {
    return make<DictObject>(Kind::Dict, *object);
  }
  const auto& big = std::get<json::BigInt>(document.storage());
  return make<BigObject>(Kind::BigInt, BigInt::parse(big.digits).value_or(BigInt()));
}

}  // namespace fairlead::jinja
