# Kaplan-Meier curves of $lung, of all and by the column $group: medians.csv, logrank.csv, curves.svg.
# SPDX-License-Identifier: Apache-2.0
suppressMessages(library(survival))

lung <- read.csv(Sys.getenv("lung"))
group <- Sys.getenv("group")
stopifnot(group %in% names(lung))

row_of <- function(name, table) {
  data.frame(group = name, n = table[["records"]], events = table[["events"]], median = table[["median"]],
             lower = table[["0.95LCL"]], upper = table[["0.95UCL"]])
}

everyone <- survfit(Surv(time, status) ~ 1, data = lung)
by_group <- survfit(reformulate(group, "Surv(time, status)"), data = lung)
tables <- summary(by_group)$table
medians <- do.call(rbind, c(list(row_of("all", summary(everyone)$table)),
                            lapply(rownames(tables), function(name) row_of(name, tables[name, ]))))
write.csv(medians, "medians.csv", row.names = FALSE, quote = FALSE)

test <- survdiff(reformulate(group, "Surv(time, status)"), data = lung)
df <- length(test$n) - 1
write.csv(data.frame(group = group, chisq = signif(test$chisq, 6), df = df,
                     p = signif(pchisq(test$chisq, df, lower.tail = FALSE), 4)),
          "logrank.csv", row.names = FALSE, quote = FALSE)

svg("curves.svg", width = 7, height = 5)
colours <- seq_along(test$n)
plot(by_group, col = colours, mark.time = TRUE, xlab = "days", ylab = "alive", main = "Advanced lung cancer")
legend("topright", rownames(tables), col = colours, lty = 1, bty = "n")
invisible(dev.off())
