// Draws a component again only when one of its properties has changed.
// SPDX-License-Identifier: Apache-2.0
import { Component, ComponentType, FunctionComponent, h } from "preact";

export function memo<P extends object>(inner: FunctionComponent<P>): ComponentType<P> {
	return class Memo extends Component<P> {
		shouldComponentUpdate(next: Readonly<P>): boolean {
			const now = this.props as Record<string, unknown>, then = next as Record<string, unknown>;
			return Object.keys({ ...now, ...then }).some((k) => now[k] !== then[k]);
		}
		render() {
			return h(inner, this.props as P);
		}
	};
}
