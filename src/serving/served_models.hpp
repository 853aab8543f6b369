#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "chat/model_files.hpp"
#include "fleet/fleet.hpp"

namespace fairlead::serving {

/// What the server knows about a model's text side: tokenizer, template, ends, defaults.
using ModelContext = chat::ModelAssets;

/// A model that requests may name.
struct ServedModel {
  std::shared_ptr<const fleet::Model> model;   ///< Of one snapshot.
  std::shared_ptr<const ModelContext> assets;  ///< Null while its files are not loaded.
};

/// All models of one snapshot with the files loaded for them, by every public name. Immutable;
/// requests share it, on any thread, so that none of them pays for the number of models.
class ServedModels {
 public:
  /// None.
  ServedModels() = default;
  /// Of models that share a name the first has it.
  explicit ServedModels(std::vector<ServedModel> models);
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;

  /// The model of this name or, failing that, of this alias; null when there is none.
  const ServedModel* find(std::string_view name) const;
  /// The only model, adapters aside, for requests that name none; null when there is none or are
  /// several.
  const ServedModel* sole() const { return sole_; }
  /// True when there is no model at all.
  bool empty() const { return models_.empty(); }

 private:
  std::vector<ServedModel> models_;
  std::unordered_map<std::string_view, const ServedModel*> by_name_;  // views into the models
  const ServedModel* sole_ = nullptr;                                 // likewise
};

}  // namespace fairlead::serving
