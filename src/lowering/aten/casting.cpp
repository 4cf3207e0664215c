#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"

namespace exportguard::lowering {
namespace {

void lower_same(LoweringContext& ctx) { ctx.result(ctx.input(0)); }

void lower_cast(LoweringContext& ctx) { ctx.result(ctx.cast(ctx.input(0), ctx.output_dtype())); }

}  // namespace

void populate_casting(LoweringTable& table) {
  table.add({"aten.to.device", "aten.to.dtype", "aten.to.other", "aten.to.dtype_layout", "aten.to.prim_Device",
             "aten.to.prim_dtype", "aten.to.prim_other", "aten._to_copy.default", "aten.type_as.default",
             "aten._autocast_to_reduced_precision.default", "aten._autocast_to_full_precision.default",
             "prims.convert_element_type.default"},
            lower_cast);
  table.add({"aten.contiguous.default", "aten.clone.default", "aten.alias.default", "aten.alias_copy.default",
             "aten.detach.default", "aten.detach_copy.default", "aten.lift.default", "aten.lift_fresh.default",
             "aten.lift_fresh_copy.default", "aten.resolve_conj.default", "aten.resolve_neg.default",
             "aten._lazy_clone.default", "prims.device_put.default", "prims.clone.default", "aten.pin_memory.default"},
            lower_same);
  table.add_complex({"aten.clone.default", "aten.contiguous.default", "aten.alias.default", "aten.detach.default",
                     "aten.lift_fresh_copy.default", "aten.resolve_neg.default"},
                    separate_each);
  table.add_complex({"aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device",
                     "prims.convert_element_type.default", "aten.resolve_conj.default"},
                    separate_cast);
}

}  // namespace exportguard::lowering
