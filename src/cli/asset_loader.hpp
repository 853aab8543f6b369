#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "base/json.hpp"
#include "chat/model_files.hpp"
#include "fleet/fleet.hpp"
#include "net/reactor.hpp"

namespace fairlead::cli {

/// Where a model's text side comes from.
struct AssetSource {
  std::string path;      ///< Folder or hub id.
  std::string sampling;  ///< The cards' sampling defaults as JSON; empty for none.
  /// Whether it may be downloaded: what a person wrote, not what an engine says.
  bool download = false;

  bool operator==(const AssetSource& other) const = default;
};

/// What the operator says about the places of models' files.
struct ModelPaths {
  std::string common;  ///< Of models whose cards name no files; empty = what their engine reports.
  std::map<std::string, std::string> named;  ///< By public name; these win over everything.
};

/// Loads the files of every model of a fleet, on a thread of its own and one after the other.
/// Models that share their files share what is loaded. Belongs to the control reactor.
class AssetLoader {
 public:
  /// Loads; called in the loader's thread. The token says that nobody wants it any more.
  using Load = std::function<Result<chat::ModelAssets>(const AssetSource& source,
                                                       const std::stop_token& stop)>;
  /// Receives a model's assets, or null when the model is gone; in the control reactor, also
  /// inside `update`.
  using OnAssets = std::function<void(const std::string& model,
                                      const std::shared_ptr<const chat::ModelAssets>& assets)>;

  /// `control` outlives it.
  AssetLoader(net::Reactor& control, ModelPaths paths, Load load, OnAssets on_assets);
  /// Ends a download and waits for the files that are being read.
  ~AssetLoader();
  AssetLoader(const AssetLoader&) = delete;
  AssetLoader& operator=(const AssetLoader&) = delete;

  /// Assets that need not be loaded, for the default path.
  void set_default(std::shared_ptr<const chat::ModelAssets> assets);
  /// Sees to the assets of the models of a new snapshot. What cannot be loaded is tried again every
  /// 30 seconds: the files may arrive.
  void update(const fleet::Fleet& fleet);

 private:
  struct Entry {
    AssetSource wanted;
    AssetSource loaded;  // valid with `assets`
    std::shared_ptr<const chat::ModelAssets> assets;
    bool failed = false;  // of `wanted`
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  std::shared_ptr<const chat::ModelAssets> find_loaded(const AssetSource& source) const;
  void give(const std::string& model, Entry& entry,
            const std::shared_ptr<const chat::ModelAssets>& assets);
  void load_next();
  void on_loaded(const std::string& model, const AssetSource& source,
                 Result<chat::ModelAssets> loaded);

  net::Reactor& control_;
  ModelPaths paths_;
  std::shared_ptr<const chat::ModelAssets> default_assets_;
  Load load_;
  OnAssets on_assets_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Entries entries_;  // by model
  bool loading_ = false;
  std::stop_source stop_;
  std::thread thread_;
  net::Timer retry_;
};

}  // namespace fairlead::cli
