#include "serving/served_models.hpp"

#include <utility>

namespace fairlead::serving {

ServedModels::ServedModels(std::vector<ServedModel> models) : models_(std::move(models)) {
  for (const ServedModel& served : models_) {
    by_name_.try_emplace(served.model->name, &served);
  }
  std::size_t own = 0;
  for (const ServedModel& served : models_) {
    if (served.model->base_name.empty()) {
      sole_ = ++own == 1 ? &served : nullptr;
    }
  }
  // Behind all names: no alias takes a model's own name from it.
  for (const ServedModel& served : models_) {
    for (const std::string& alias : served.model->aliases) {
      by_name_.try_emplace(alias, &served);
    }
  }
}

const ServedModel* ServedModels::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

}  // namespace fairlead::serving
