#include "cli/asset_loader.hpp"

#include <utility>

#include "base/log.hpp"

namespace fairlead::cli {
namespace {

// Files that could not be loaded may have arrived since.
constexpr net::Duration kRetry = std::chrono::seconds(30);

}  // namespace

AssetLoader::AssetLoader(net::Reactor& control, ModelPaths paths, Load load, OnAssets on_assets)
    : control_(control),
      paths_(std::move(paths)),
      load_(std::move(load)),
      on_assets_(std::move(on_assets)),
      retry_([this] {
        for (auto& [model, entry] : entries_) {
          entry.failed = false;
        }
        load_next();
      }) {}

AssetLoader::~AssetLoader() {
  *alive_ = false;
  stop_.request_stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void AssetLoader::set_default(std::shared_ptr<const chat::ModelAssets> assets) {
  default_assets_ = std::move(assets);
}

void AssetLoader::update(const fleet::Fleet& fleet) {
  Entries former = std::exchange(entries_, {});
  for (const auto& model : fleet.models) {
    if (!model->base_name.empty()) {
      continue;  // an adapter has its base's
    }
    AssetSource wanted;
    const auto named = paths_.named.find(model->name);
    wanted.path = named != paths_.named.end()   ? named->second
                  : !model->source_path.empty() ? model->source_path
                  : !paths_.common.empty()      ? paths_.common
                                                : model->model_id;
    wanted.download = named == paths_.named.end() && !model->source_path.empty();
    if (!model->default_sampling.is_null()) {
      wanted.sampling = json::dump(model->default_sampling);
    }
    if (wanted.path.empty()) {
      continue;
    }
    auto known = former.extract(model->name);
    Entry& entry = entries_[model->name];
    if (!known.empty()) {
      entry = std::move(known.mapped());
    }
    entry.failed = entry.failed && entry.wanted == wanted;
    entry.wanted = std::move(wanted);
  }
  for (const auto& [model, entry] : former) {
    if (entry.assets) {
      on_assets_(model, nullptr);
    }
  }
  load_next();
}

std::shared_ptr<const chat::ModelAssets> AssetLoader::find_loaded(const AssetSource& source) const {
  if (default_assets_ && source.path == paths_.common && source.sampling.empty()) {
    return default_assets_;
  }
  for (const auto& [model, entry] : entries_) {
    if (entry.assets && entry.loaded == source) {
      return entry.assets;
    }
  }
  return nullptr;
}

void AssetLoader::give(const std::string& model, Entry& entry,
                       const std::shared_ptr<const chat::ModelAssets>& assets) {
  entry.loaded = entry.wanted;
  entry.assets = assets;
  on_assets_(model, assets);
}

/// Gives out what is there and begins to load the first thing that is not.
void AssetLoader::load_next() {
  for (auto& [model, entry] : entries_) {
    if (entry.failed || (entry.assets && entry.loaded == entry.wanted)) {
      continue;
    }
    if (const auto assets = find_loaded(entry.wanted)) {
      give(model, entry, assets);
    } else if (!loading_) {
      loading_ = true;
      if (thread_.joinable()) {
        thread_.join();  // it has posted its result: it is at its end
      }
      thread_ = std::thread([this, model, source = entry.wanted, stop = stop_.get_token()] {
        control_.post(
            [this, alive = alive_, model, source, loaded = load_(source, stop)]() mutable {
              if (*alive) {
                on_loaded(model, source, std::move(loaded));
              }
            });
      });
    }
  }
}

void AssetLoader::on_loaded(const std::string& model, const AssetSource& source,
                            Result<chat::ModelAssets> loaded) {
  loading_ = false;
  const auto entry = entries_.find(model);
  const bool wanted = entry != entries_.end() && entry->second.wanted == source;
  if (wanted && loaded) {
    log::info("loaded tokenizer and template of model `{}` from {}", model, loaded->folder);
    give(model, entry->second, std::make_shared<const chat::ModelAssets>(std::move(*loaded)));
  } else if (wanted) {
    entry->second.failed = true;
    retry_.arm(kRetry);
    log::error(
        "the files of model `{}`, to be found at `{}`, cannot be loaded: {}; name their folder, or "
        "the hub's name for them, with --model-path {}=DIR, or as `source_path` in the model's "
        "cards",
        model, source.path, loaded.error().message, model);
  }
  load_next();
}

}  // namespace fairlead::cli
