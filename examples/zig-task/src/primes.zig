//! The task's logic. It needs no host, so its tests run natively.

const std = @import("std");

/// The task's keys of the context. Other keys are ignored, because the host sets some.
pub const Order = struct {
    below: usize = 1000,
    rounds: u64 = 1,
    /// The folder of reports in the sandbox.
    report: ?[]const u8 = null,

    pub fn of(arena: std.mem.Allocator, context: []const u8) !Order {
        return std.json.parseFromSliceLeaky(Order, arena, context, .{ .ignore_unknown_fields = true });
    }
};

/// Count the primes with the sieve of Eratosthenes. It needs one byte of memory for each number.
pub fn count(gpa: std.mem.Allocator, below: usize) !usize {
    const composite = try gpa.alloc(bool, below);
    defer gpa.free(composite);
    @memset(composite, false);
    var primes: usize = 0;
    for (composite, 0..) |is_composite, number| {
        if (is_composite or number < 2) continue;
        primes += 1;
        // The square cannot overflow in 64 bits.
        var multiple = @as(u64, number) * number;
        while (multiple < below) : (multiple += number) composite[@intCast(multiple)] = true;
    }
    return primes;
}

/// Return the file name of a slot's report. A repeated run overwrites the report.
pub fn reportFile(arena: std.mem.Allocator, folder: []const u8, slot: []const u8) ![]const u8 {
    const name = try arena.dupe(u8, slot);
    std.mem.replaceScalar(u8, name, ':', '-');
    return std.fmt.allocPrint(arena, "{s}/primes-{s}.json", .{ std.mem.trimEnd(u8, folder, "/"), name });
}

const testing = std.testing;

test "primes are counted" {
    for ([_]usize{ 0, 2, 3, 4, 10, 1000 }, [_]usize{ 0, 0, 1, 2, 4, 168 }) |below, primes| {
        try testing.expectEqual(primes, try count(testing.allocator, below));
    }
}

test "absent keys have defaults" {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const hosts_own = "{\"execution_id\": \"x\", \"attempt\": 1, \"report\": null}";
    try testing.expectEqualDeep(Order{}, try Order.of(arena.allocator(), hosts_own));
}

test "an invalid context is an error" {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    for ([_][]const u8{ "{\"below\": \"many\"}", "{\"below\": -1}", "{\"report\": 7}", "[]" }) |context| {
        try testing.expect(std.meta.isError(Order.of(arena.allocator(), context)));
    }
}

test "the report is named after the slot" {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const file = try reportFile(arena.allocator(), "/reports/", "2026-11-21T02:00:00Z");
    try testing.expectEqualStrings("/reports/primes-2026-11-21T02-00-00Z.json", file);
}
