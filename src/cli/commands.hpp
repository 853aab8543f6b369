#pragma once

#include "cli/settings.hpp"

namespace fairlead::cli {

/// `fairlead config check|docs`: checks serve's options and prints what is in force, or prints
/// docs/configuration.md.
int run_config(const Settings& settings);

/// `fairlead serve`: the frontend, until SIGTERM.
int run_serve(const Settings& settings);

/// `fairlead demo`: a frontend and two simulated engines, until SIGINT.
int run_demo(const Settings& settings);

/// `fairlead mock-engine`: plays an engine until SIGTERM.
int run_mock_engine(const Settings& settings);

/// `fairlead probe URL`: prints what an engine reports.
int run_probe(const Settings& settings);

/// `fairlead tokenize`: JSON lines of text to ids, or back.
int run_tokenize(const Settings& settings);

/// `fairlead render`: JSON lines of conversations to prompts.
int run_render(const Settings& settings);

/// `fairlead version`.
int run_version(const Settings& settings);

}  // namespace fairlead::cli
