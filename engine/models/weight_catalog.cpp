#include "engine/models/weight_catalog.h"

#include "kernels/core/error.h"

namespace tokenmill {

void WeightCatalog::add(WeightSource source) {
  const std::string name = source.name;
  if (!sources_.emplace(name, std::move(source)).second) {
    throw Error(ErrorKind::kIo, "{}: tensor {} appears twice", where_, name);
  }
}

const WeightSource* WeightCatalog::find(const std::string& name) const {
  const auto it = sources_.find(name);
  return it == sources_.end() ? nullptr : &it->second;
}

const WeightSource& WeightCatalog::at(const std::string& name) const {
  if (const WeightSource* source = find(name)) return *source;
  throw Error(ErrorKind::kIo, "{}: tensor {} is missing, the model's configuration asks for it; is the checkpoint complete?", where_, name);
}

}  // namespace tokenmill
